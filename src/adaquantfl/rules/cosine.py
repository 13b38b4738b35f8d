"""Levels that rise along half a cosine over the rounds, as learning rates often fall: a rule that looks at nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..errors import RuleError
from .base import Rule, RuleState, Survey
from .checks import check_start


@dataclass(frozen=True)
class Cosine(Rule):
    """From s0 to s_end in `rounds` rounds, slowly at both ends; s_end from then on.

    >>> rule, state = Cosine(s0=1, s_end=9, rounds=4), Cosine(s0=1, s_end=9, rounds=4).init()
    >>> for _ in range(3):  # the third round is half way
    ...     state = rule.plan(state, bits=0, dimension=10, loss=None, eta=0.1)
    >>> round(state.s, 6)
    5.0
    """

    s0: float = 1
    s_end: float = 8
    rounds: int = 100
    name = "cosine"
    negative_loss = True

    def __post_init__(self) -> None:
        check_start(self.s0)
        check_start(self.s_end)
        if self.rounds < 1:
            raise RuleError(f"rounds = {self.rounds}: a cosine takes at least 1 round.")

    def init(self) -> RuleState:
        return RuleState(s=self.s0, memory={"rounds": 0})

    def plan(
        self,
        state: RuleState,
        *,
        bits: float,
        dimension: int,
        loss: float | None,
        eta: float,
        survey: Survey | None = None,
    ) -> RuleState:
        done = state.memory["rounds"]
        share = (1 - math.cos(math.pi * min(done / self.rounds, 1.0))) / 2
        return replace(state, s=self.s0 + (self.s_end - self.s0) * share, memory={"rounds": done + 1})
