"""AdaQuantFL's rule on a smoothed loss: what its critics suggest where only a sample of clients answers.

The mean mini-batch loss of a round costs nothing to know, but it is noisy; an exponential average evens it out, at the
price of following the loss with a delay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..errors import ScheduleError
from .adaquant import AdaQuant
from .base import ScheduleState, Survey


@dataclass(frozen=True)
class SmoothedAdaQuant(AdaQuant):
    """`AdaQuant` on an exponential average of the rounds' own losses; smoothing = 0.9 is over about ten rounds.

    >>> rule = SmoothedAdaQuant(s0=2, smoothing=0.5)
    >>> state = rule.init()
    >>> for bits, loss in ((0, None), (1600, 2.0), (3200, 0.25)):
    ...     state = rule.step(state, bits=bits, dimension=100, loss=loss, eta=0.1)
    >>> state.memory["smoothed"]
    1.125
    """

    smoothing: float = 0.9
    round_loss = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.smoothing < 1:
            raise ScheduleError(f"smoothing = {self.smoothing}: it must be at least 0 and below 1.")

    def step(
        self,
        state: ScheduleState,
        *,
        bits: float,
        dimension: int,
        loss: float | None,
        eta: float,
        survey: Survey | None = None,
    ) -> ScheduleState:
        before = state.memory.get("smoothed")
        if loss is None or not math.isfinite(loss):
            smoothed = before
        else:
            smoothed = loss if before is None else self.smoothing * before + (1 - self.smoothing) * loss
        state = replace(state, memory={"smoothed": smoothed})
        return super().step(state, bits=bits, dimension=dimension, loss=smoothed, eta=eta, survey=survey)
