"""Auto: the coarsest levels that training does not notice. There is no s_0 to choose.

Each client knows its update, and so finds the coarsest levels with a certain error, ||Q(u) - u||^2 / ||u||^2, exactly
(`quantizers.choice`). Which error is allowed depends on what becomes of it:

- A client with error feedback adds what it left out to its next update. Nothing is lost, but it comes later: `late.py`
  says by how much. The error is at most `error`.
- Without feedback the errors of the clients are noise in the round's step u = sum of p_i u_i. With the error q it has
  the energy q sum of p_i^2 ||u_i||^2, which is a share `noise` of ||u||^2 where

      q = noise * alignment / sum of p_i^2,    alignment = ||u||^2 / sum of p_i ||u_i||^2.

  The alignment is 1 where all clients want the same, and about sum of p_i^2 where their updates have nothing in common.
  The server measures it from the updates that it adds up; until then it takes the least.
- A server that does not average, but takes medians or selects, needs each update by itself to be right: `alone`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..errors import RuleError
from .base import Need, Plan, Report, Rule, Seen, State, Verdict
from .late import error_after

OWN_QUANTIZER = "fitted"
MOST_ERROR = 64.0  # of one client, however many average it out: coarser frames save nothing
DOWNLINK_ERROR = 0.5  # the largest share of the model's change that is left for later rounds
_MEMORY = 0.5  # of what was measured before, in the estimate of the alignment


@dataclass(frozen=True)
class Auto(Rule):
    """The coarsest levels with an error that training does not notice; nothing has to be set.

    Attributes:
        error: the largest error of an update, where the client sends the rest later.
        noise: the share of a round's step that noise may be, where clients have no error feedback.
        alone: the error of an update where the server does not average.

    >>> from adaquantfl.rules import Energies
    >>> rule = Auto(noise=0.5)
    >>> seen = Seen(bits=0, dimension=100, weights_squared=0.25, feedback=False)  # four clients of equal weight
    >>> state, plan = rule.plan(rule.init(), seen)
    >>> plan.max_error  # nothing is known of them
    0.5
    >>> state, _ = rule.judge(state, Report(2.3, energies=Energies(0.6, mean=1.0, noise=0.1, weights_squared=0.25)))
    >>> rule.plan(state, seen)[1].max_error
    1.0
    >>> later = {"round": 9, "alignment": None}
    >>> [round(rule.plan(later, Seen(bits=0, dimension=9, gain=gain))[1].max_error, 2) for gain in (0.0, 0.5, 1.0)]
    [0.67, 0.17, 0.05]
    """

    error: float = 0.8
    noise: float = 0.25
    alone: float = 0.03
    name = "auto"
    needs = frozenset({Need.ENERGIES})

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and value > 0):
                raise RuleError(f"{field.name} = {value!r}: expected a number above 0.")
        if not self.error < 1:
            raise RuleError(f"error = {self.error!r}: it is below 1, or clients would send nothing.")

    def init(self) -> State:
        return {"alignment": None, "round": 0}

    def plan(self, state: State, seen: Seen) -> tuple[State, Plan]:
        state = {**state, "round": state["round"] + 1}
        feedback = seen.feedback
        if feedback is None:
            feedback = seen.quantizer is None or seen.quantizer.traits.feedback
        if not seen.averages:
            error = self.alone
        elif feedback:
            error = error_after(state["round"] * seen.participation, self.error, seen.gain)
        else:
            alignment = max(state["alignment"] or 0.0, seen.weights_squared)
            error = min(self.noise * alignment / seen.weights_squared, MOST_ERROR)
        return state, Plan(
            max_error=error,
            quantizer=OWN_QUANTIZER if seen.quantizer is None else "",
            balanced=True,
            feedback=feedback,
            downlink="late",
            downlink_error=error_after(state["round"], DOWNLINK_ERROR, seen.gain),
        )

    def judge(self, state: State, report: Report) -> tuple[State, Verdict]:
        energies = report.energies
        if energies is None or not energies.mean > 0:
            return state, Verdict.KEEP
        found = (energies.step - energies.noise) / energies.mean
        found = min(max(found, energies.weights_squared), 1.0)
        before = state["alignment"]
        # It falls at once and rises slowly: with an alignment that is too high the noise exceeds its share.
        alignment = found if before is None or found < before else _MEMORY * before + (1 - _MEMORY) * found
        return {**state, "alignment": alignment}, Verdict.KEEP
