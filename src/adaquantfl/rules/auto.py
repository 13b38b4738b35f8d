"""Auto, the safe default: the coarsest levels that training does not notice. There is no s_0 to choose.

Each client knows its update, and so finds the coarsest levels with a certain error, ||Q(u) - u||^2 / ||u||^2, exactly
(`quantizers.choice`). Which error is allowed depends on what becomes of it:

- A client with error feedback adds what it left out to its next update. Nothing is lost, it comes later: with an error
  D by about D / (1 - D) rounds. That may be a fifth of the rounds that the client has taken part in. So a short
  training does not end before its updates have arrived. And D is at most `error`. Clients that train until they fit
  their data ask again for what has not arrived, and the model gets it twice. The downlink `late` measures how much
  they do (`protocol.gain`), and the delay is at most 0.05 / gain^2 rounds; where nobody measures it, one round.
- Without feedback the errors of the clients are noise in the round's step u = sum of p_i u_i. With the error q it has
  the energy q sum of p_i^2 ||u_i||^2, which is a share `noise` of ||u||^2 where

      q = noise * alignment / sum of p_i^2,    alignment = ||u||^2 / sum of p_i ||u_i||^2.

  The alignment is 1 where all clients want the same, and about sum of p_i^2 where their updates have nothing in common.
  The server measures it from the updates that it adds up; until then it takes the least.
- A server that does not average, but takes medians or selects, needs each update by itself to be right: `alone`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import RuleError
from .base import Energies, Mixing, Rule, RuleState

MOST_ERROR = 64.0  # of one client, however many average it out: coarser frames save nothing
LATE = 0.2  # of the rounds that a client has taken part in
GAIN_LATE = 0.05  # rounds, at a gain of 1: near the end of training it adds about a fifth to the noise of SGD itself
UNMEASURED_LATE = 1.0  # rounds, where nobody measures the gain
_MEMORY = 0.5  # of what was measured before, in the estimate of the alignment


@dataclass(frozen=True)
class Auto(Rule):
    """The coarsest levels with an error that training does not notice.

    error: of an update at most, where the client sends the rest later. noise: the share of a round's step that noise
    may be, where clients have no error feedback. alone: the error of an update where the server does not average.

    >>> rule = Auto(noise=0.5)
    >>> state = rule.init()
    >>> rule.client_number(state, Mixing(weights_squared=0.25))  # four clients of equal weight, nothing known of them
    0.5
    >>> state = rule.learn(state, Energies(step=0.6, mean=1.0, noise=0.1, weights_squared=0.25))
    >>> rule.client_number(state, Mixing(weights_squared=0.25))
    1.0
    >>> later = RuleState(s=1, memory={"round": 10, "alignment": None})
    >>> [round(rule.client_number(later, Mixing(feedback=True, gain=gain)), 2) for gain in (0.0, 0.5, 1.0)]
    [0.67, 0.17, 0.05]
    """

    error: float = 0.8
    noise: float = 0.25
    alone: float = 0.03
    name = "auto"
    balanced = True
    negative_loss = True
    usual_quantizer = "fitted"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and value > 0):
                raise RuleError(f"{field.name} = {value!r}: expected a number above 0.")
        if not self.error < 1:
            raise RuleError(f"error = {self.error!r}: it is below 1, or clients would send nothing.")

    @classmethod
    def of_config(cls, config: Any) -> Auto:
        return cls(config.error, config.noise)

    @property
    def client_choice(self) -> tuple[str, float] | None:
        return self.name, self.alone

    def init(self) -> RuleState:
        return RuleState(s=1, memory={"alignment": None, "round": 0})  # s is a placeholder: each client chooses

    def client_number(self, state: RuleState, mixing: Mixing) -> float:
        if not mixing.averages:
            return self.alone
        if mixing.feedback:
            return error_after(state.memory["round"] * mixing.participation, self.error, mixing.gain)
        alignment = max(state.memory["alignment"] or 0.0, mixing.weights_squared)
        return min(self.noise * alignment / mixing.weights_squared, MOST_ERROR)

    @classmethod
    def choose(cls, number: float, update: npt.NDArray[np.float32], coarsest: Callable[[float], float]) -> float:
        return coarsest(number)

    def plan(self, state: RuleState, **_: Any) -> RuleState:
        return replace(state, memory={**state.memory, "round": state.memory["round"] + 1})

    def wants_energies(self, state: RuleState, mixing: Mixing) -> bool:
        return mixing.averages and not mixing.feedback

    def learn(self, state: RuleState, energies: Energies) -> RuleState:
        if not energies.mean > 0:
            return state
        found = (energies.step - energies.noise) / energies.mean
        found = min(max(found, energies.weights_squared), 1.0)
        before = state.memory["alignment"]
        # It falls at once and rises slowly: with an alignment that is too high the noise exceeds its share.
        alignment = found if before is None or found < before else _MEMORY * before + (1 - _MEMORY) * found
        return replace(state, memory={**state.memory, "alignment": alignment})


def error_after(rounds: float, most: float, gain: float | None) -> float:
    """The error D for a sender that has taken part in this many rounds, `most` at most.

    D / (1 - D), the delay, is a fifth of the rounds, and at most what the gain allows.

    >>> [round(error_after(k, most=0.9, gain=0.0), 2) for k in (1, 10, 100)]
    [0.17, 0.67, 0.9]
    """
    late = LATE * max(rounds, 1.0)
    if gain is None:
        late = min(late, UNMEASURED_LATE)
    elif gain > 0:
        late = min(late, GAIN_LATE / gain**2)
    return min(late / (1 + late), most)
