"""Rules of other papers that choose the number of levels: DAdaQuant and FedDQ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import RuleError
from ..theory import MAX_LEVELS
from .base import Need, Plan, Rule, Seen, State
from .checks import check_start


@dataclass(frozen=True)
class DAdaQuant(Rule):
    """Double s when the smoothed loss has not fallen for some rounds; give each client levels by its weight.

    Honig, Zhao and Mullins (ICML 2022) start from the paper that this package implements. Early rounds need few levels,
    they say, because a coarse quantizer loses nothing while the loss still falls quickly. For equal variance of the
    sum, levels proportional to p_i^(2/3) need the fewest bits.

    Attributes:
        s0: levels at the start.
        patience: rounds without a lower loss after which s doubles.
        smoothing: of the loss, psi in their paper.
        time: whether s doubles.
        clients: whether each client has levels by its weight.

    >>> rule = DAdaQuant(s0=1, patience=2, smoothing=0.0, clients=False)
    >>> state = rule.init()
    >>> for loss in (1.0, 0.5, 0.5, 0.5):
    ...     state, plan = rule.plan(state, Seen(bits=0, dimension=10, loss=loss))
    >>> plan.levels
    2
    """

    s0: float = 1
    patience: int = 10
    smoothing: float = 0.9
    time: bool = True
    clients: bool = True
    name = "dadaquant"
    reference = "Honig, Zhao, Mullins: DAdaQuant, ICML 2022"
    needs = frozenset({Need.ROUND_LOSS})  # as its authors do

    def __post_init__(self) -> None:
        check_start(self.s0)
        if self.patience < 1 or not 0 <= self.smoothing < 1:
            raise RuleError(
                f"patience = {self.patience}, smoothing = {self.smoothing}: patience is at least 1 round, smoothing "
                "at least 0 and below 1."
            )

    def init(self) -> State:
        return {"s": self.s0, "smoothed": [], "since": 0}

    def plan(self, state: State, seen: Seen) -> tuple[State, Plan]:
        if self.time and seen.loss is not None and math.isfinite(seen.loss):
            past: list[float] = state["smoothed"]
            smoothed = self.smoothing * past[-1] + (1 - self.smoothing) * seen.loss if past else seen.loss
            past = [*past, smoothed][-self.patience - 1 :]
            state = {"s": state["s"], "smoothed": past, "since": state["since"] + 1}
            if state["since"] > self.patience and past[-1] >= past[0]:
                state |= {"s": min(2 * state["s"], MAX_LEVELS), "since": 0}
        if not self.clients or not seen.weights:
            return state, Plan(levels=state["s"])
        levels = client_levels(state["s"], list(seen.weights.values()))
        each = {client: float(max(1, math.floor(s + 0.5))) for client, s in zip(seen.weights, levels, strict=True)}
        return state, Plan(levels=each)


@dataclass(frozen=True)
class FedDQ(Rule):
    """Each client takes the bits that the range of its update needs at a fixed resolution.

    As updates shrink, so do the bits: the other way round than AdaQuantFL. Qu, Song and Tsui (2022) report up to 65 %
    fewer bits than AdaQuantFL to the same accuracy. For norm = "linf" and scope = "whole", where s levels on either
    side reach the largest element.

    Attributes:
        resolution: the distance of two levels.

    >>> FedDQ(0.5).plan({}, Seen(bits=0, dimension=10))[1].resolution
    0.5
    """

    resolution: float = 0.01
    name = "feddq"
    reference = "Qu, Song, Tsui: FedDQ, 2022"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.resolution) and self.resolution > 0):
            raise RuleError(f"resolution = {self.resolution!r}: the distance of two levels is a number above 0.")

    def plan(self, state: State, seen: Seen) -> tuple[State, Plan]:
        return state, Plan(resolution=self.resolution)


def client_levels(s: float, weights: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return levels proportional to p_i^(2/3) whose weighted sum has the variance that s levels for everybody give.

    The variance of sum p_i Q(update_i) is proportional to the sum of p_i^2 / s_i^2.

    >>> client_levels(4, [0.25, 0.25, 0.25, 0.25]).round(9).tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    p = np.asarray(weights, dtype=np.float64)
    share = p ** (2 / 3)
    levels: npt.NDArray[np.float64] = share * s * np.sqrt(np.sum(p**2 / share**2) / np.sum(p**2))
    return levels
