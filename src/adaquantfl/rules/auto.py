"""Auto, the safe default: the coarsest levels whose noise training does not notice. There is no s_0 to choose.

A round moves the model by u = sum of p_i u_i. Client i adds noise of energy q_i ||u_i||^2, independent of the others',
so that the noise in u has the energy sum of p_i^2 q_i ||u_i||^2. With the same q for all it is at most a share `noise`
of ||u||^2 where

    q = noise * alignment / sum of p_i^2,    alignment = ||u||^2 / sum of p_i ||u_i||^2.

The alignment is 1 where all clients want the same, and about sum of p_i^2 where their updates have nothing in common.
The server measures it from the updates that it adds up; until then it takes the least. Each client knows its update,
and so finds the coarsest levels with error q exactly (`quantizers.choice`). A step with noise of a fixed share of its
own energy is never worth less than 1 / (1 + noise) of a step without: docs/theory.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import RuleError
from .base import Energies, Rule, RuleState

MOST_ERROR = 64.0  # of one client, however many average it out: coarser frames save nothing
_MEMORY = 0.5  # of what was measured before, in the estimate of the alignment


@dataclass(frozen=True)
class Auto(Rule):
    """Noise of at most this share of the energy of a round's step. Where the server does not average, of each update.

    >>> rule = Auto(noise=0.5)
    >>> state = rule.init()
    >>> rule.client_number(state, weights_squared=0.25)  # four clients of equal weight; nothing is known of them yet
    0.5
    >>> state = rule.learn(state, Energies(step=0.6, mean=1.0, noise=0.1, weights_squared=0.25))
    >>> rule.client_number(state, weights_squared=0.25)
    1.0
    """

    noise: float = 0.5
    name = "auto"
    balanced = True
    negative_loss = True
    usual_quantizer = "centroid"

    def __post_init__(self) -> None:
        if isinstance(self.noise, bool) or not (math.isfinite(self.noise) and self.noise > 0):
            raise RuleError(f"noise = {self.noise!r}: the noise's share of a step's energy is a number above 0.")

    @property
    def client_choice(self) -> tuple[str, float] | None:
        return self.name, self.noise

    def init(self) -> RuleState:
        return RuleState(s=1, memory={"alignment": None, "round": 0})  # s is a placeholder: each client chooses

    def client_number(self, state: RuleState, weights_squared: float) -> float:
        if weights_squared >= 1.0:  # nothing is averaged
            return self.noise
        alignment = max(state.memory["alignment"] or 0.0, weights_squared)
        return min(self.noise * alignment / weights_squared, MOST_ERROR)

    @classmethod
    def choose(
        cls,
        number: float,
        update: npt.NDArray[np.float32],
        coarsest: Callable[[float], float],
    ) -> float:
        return coarsest(number)

    def plan(self, state: RuleState, **_: Any) -> RuleState:
        return replace(state, memory={**state.memory, "round": state.memory["round"] + 1})

    def wants_energies(self, state: RuleState) -> bool:
        round = state.memory["round"]  # 1 is the first
        return bool(round <= 4 or round % 4 == 0)

    def learn(self, state: RuleState, energies: Energies) -> RuleState:
        if not energies.mean > 0:
            return state
        found = (energies.step - energies.noise) / energies.mean
        found = min(max(found, energies.weights_squared), 1.0)
        before = state.memory["alignment"]
        alignment = found if before is None else _MEMORY * before + (1 - _MEMORY) * found
        return replace(state, memory={**state.memory, "alignment": alignment})
