"""Taking rounds back whose noise made training diverge: for cost-aware, and as a wrapper for every other rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import RuleError
from ..theory import MAX_LEVELS
from .base import Energies, Mixing, Rule, RuleState, Survey, Verdict

LOSS_AVERAGE_WEIGHT = 0.3  # how much the last round counts in what a round's loss usually is
CAUTION_LEFT = 0.9  # of the caution after a round that was taken back, one round later
MOST_CAUTION = 64.0
MOST_LATE_CAUTION = 1.5  # above it a rule's updates are not late
MOST_ROUNDS_TAKEN_BACK = 6  # in a row: with 64 times the levels it is not the noise
WATCHED = {"usual": None, "caution": 1.0, "undone": 0}  # the memory that `watched` needs, at the start


def watched(memory: Mapping[str, Any], round_loss: float, undo: float) -> tuple[dict[str, Any], bool]:
    """The memory after a round with this loss, and whether the round is to be taken back.

    It is if the loss is not finite, or more than `undo` times the usual one; never in the first round.

    >>> memory, _ = watched(WATCHED, 2.0, undo=5)
    >>> watched(memory, 11.0, undo=5)
    ({'usual': 2.0, 'caution': 2.0, 'undone': 1}, True)
    """
    usual, undone = memory["usual"], memory["undone"]
    too_high = not math.isfinite(round_loss) or (usual is not None and 0 < undo * usual < round_loss)
    if too_high and usual is not None and undone < MOST_ROUNDS_TAKEN_BACK:
        return {**memory, "caution": min(2 * memory["caution"], MOST_CAUTION), "undone": undone + 1}, True
    if math.isfinite(round_loss):
        usual = round_loss if usual is None else usual + LOSS_AVERAGE_WEIGHT * (round_loss - usual)
    return {**memory, "usual": usual, "undone": 0}, False


def relaxed(caution: float) -> float:
    """The caution one round later.

    >>> relaxed(2.0)
    1.9
    """
    return 1 + CAUTION_LEFT * (caution - 1)


@dataclass(frozen=True)
class Undo(Rule):
    """Any rule, with rounds taken back as cost-aware does it.

    times: a round is undone when its clients saw this many times the usual loss, or a loss that is not finite. The
    round before it is undone too, since they trained on its noise. The rule's s is doubled then, and the factor decays
    over the next twenty rounds. Where clients choose s by themselves, only the model is restored.

    >>> from adaquantfl import Fixed
    >>> rule = Undo(Fixed(bits=2))
    >>> state = rule.plan(rule.init(), bits=0, dimension=10, loss=None, eta=0.1)
    >>> state, verdict = rule.judge(state, round_loss=2.0)
    >>> state, verdict = rule.judge(state, round_loss=11.0)
    >>> verdict, rule.plan(state, bits=0, dimension=10, loss=None, eta=0.1).s
    (<Verdict.ROLL_BACK: 2>, 6.0)
    """

    rule: Rule
    times: float = 5.0
    name = "undo"
    rolls_back = True

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule):
            raise RuleError(f"Undo({self.rule!r}): expected a rule, such as Fixed(bits=2).")
        if self.rule.rolls_back:
            raise RuleError(f"The rule {self.rule.name!r} takes rounds back by itself: use it without Undo.")
        if isinstance(self.times, bool) or not isinstance(self.times, int | float) or not self.times > 1:
            raise RuleError(f"times = {self.times!r}: expected a number above 1, of times the usual loss.")
        for fact in ("balanced", "may_be_late", "negative_loss", "round_loss", "usual_quantizer"):
            object.__setattr__(self, fact, getattr(self.rule, fact))

    def init(self) -> RuleState:
        return self._around(self.rule.init(), WATCHED)

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
        inside, memory = self._inside(state), state.memory
        planned = self.rule.plan(inside, bits=bits, dimension=dimension, loss=loss, eta=eta, survey=survey)
        after = self._around(planned, memory)
        return replace(after, memory={**after.memory, "caution": relaxed(memory["caution"])})

    def judge(self, state: RuleState, round_loss: float, survey: Survey | None = None) -> tuple[RuleState, Verdict]:
        memory, taken_back = watched(state.memory, round_loss, self.times)
        if taken_back:
            return self._around(self._inside(state), memory), Verdict.ROLL_BACK
        inside, verdict = self.rule.judge(self._inside(state), round_loss, survey)
        return self._around(inside, memory), verdict

    def learn(self, state: RuleState, energies: Energies) -> RuleState:
        return self._around(self.rule.learn(self._inside(state), energies), state.memory)

    def wants_loss(self, state: RuleState, bits: float) -> bool:
        return self.rule.wants_loss(self._inside(state), bits)

    def wants_survey(self, state: RuleState) -> bool:
        return self.rule.wants_survey(self._inside(state))

    def wants_energies(self, state: RuleState, mixing: Mixing) -> bool:
        return self.rule.wants_energies(self._inside(state), mixing)

    def candidates(self, s: float) -> tuple[float, ...]:
        return self.rule.candidates(s)

    def levels_by_weight(self, s: float, weights: Mapping[int, float]) -> dict[int, float] | None:
        return self.rule.levels_by_weight(s, weights)

    @property
    def client_choice(self) -> tuple[str, float] | None:
        return self.rule.client_choice

    @property
    def chooses_by_error(self) -> bool:
        return self.rule.chooses_by_error

    def client_number(self, state: RuleState, mixing: Mixing) -> float:
        return self.rule.client_number(self._inside(state), mixing)

    @staticmethod
    def _inside(state: RuleState) -> RuleState:
        return RuleState(**state.memory["inside"])

    @staticmethod
    def _around(inside: RuleState, memory: Mapping[str, Any]) -> RuleState:
        """The state that the server sees: the rule's own, with more levels while there is caution."""
        s = inside.s
        if s is not None and memory["caution"] > 1:
            s = min(s * memory["caution"], float(MAX_LEVELS))
        kept = {key: memory[key] for key in WATCHED}
        later = 0.0 if memory["caution"] > MOST_LATE_CAUTION else inside.later
        return replace(inside, s=s, memory={**kept, "inside": inside.to_dict()}, later=later)
