"""What a rule is: settings and pure methods. What changes lives in a state that is passed in and returned.

A rule plans (how many levels for this round) and judges (does this round's update count). Where it asks for them, the
clients send surveys: what other numbers of levels would have done to their updates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import RuleError


@dataclass(frozen=True)
class RuleState:
    """Where a rule stands: all it needs to continue after a restart.

    - `s`: the levels to use now, which need not be whole; None is float32, not quantized.
    - `f0`, `eta0`: the start, as first seen.
    - `boundary`: how many paper bits one client must have sent before the rule chooses s again.
    - `memory`: what else a rule keeps.
    - `later`: the share of an update's energy that clients send in later rounds, instead of sending all of it with
      noise. Each client then chooses the coarsest levels of `fitted` that leave out no more, and s does not count. 0 is
      the uplink as it is set.

    >>> from adaquantfl import AdaQuant
    >>> AdaQuant(s0=2).plan(RuleState(s=2), bits=0, dimension=100, loss=2.3, eta=0.1)
    RuleState(s=2, f0=2.3, eta0=0.1, boundary=1600.0, memory={}, later=0.0)
    """

    s: float | None
    f0: float | None = None
    eta0: float | None = None
    boundary: float = 0.0
    memory: dict[str, Any] = field(default_factory=dict)
    later: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON.

        >>> RuleState(**RuleState(3).to_dict()) == RuleState(3)
        True
        """
        return asdict(self)


@dataclass(frozen=True)
class Survey:
    """What several numbers of levels would have done to a round's updates.

    errors: the quantizer's variance as a share of the update's squared norm. costs: what the round would have cost.
    loss: on a sample of the clients' data, at the model that the round began with. harm: how much the noise of the
    levels that were in use raises it. participation: the share of all clients that were asked. It is 0 where the server
    does not average: each update then has to be right by itself.

    >>> survey = Survey(levels=(1, 2, 4), errors=(9.0, 3.0, 0.8), costs=(100, 180, 350), loss=1.2, harm=0.01)
    >>> dict(zip(survey.levels, survey.costs))
    {1: 100, 2: 180, 4: 350}
    """

    levels: tuple[float, ...]
    errors: tuple[float, ...]
    costs: tuple[float, ...]
    loss: float = math.nan
    harm: float = 0.0
    participation: float = 1.0


@dataclass(frozen=True)
class Energies:
    """The squared norms of a round's updates, as the server decoded them.

    step: of the weighted sum of the updates, their noise included. mean: of the clients' own updates without noise,
    weighted. noise: what the clients' noise is in `step`, on average. weights_squared: the sum of p_i^2.

    >>> Energies(step=0.6, mean=1.0, noise=0.1, weights_squared=0.25).step
    0.6
    """

    step: float
    mean: float
    noise: float
    weights_squared: float


@dataclass(frozen=True)
class Mixing:
    """What becomes of the clients' errors. weights_squared: the sum of p_i^2 over a round's clients. averages: whether
    the new model is a mean over the clients. feedback: whether clients send what they left out later. participation:
    the share of the clients that take part in a round. gain: the share of what the model lacks that the next update
    asks for; None where it is not measured.

    >>> Mixing(weights_squared=0.25).feedback
    False
    """

    weights_squared: float = 1.0
    averages: bool = True
    feedback: bool = False
    participation: float = 1.0
    gain: float | None = None


class Verdict(Enum):
    """What a rule says of a round: keep its update, reject it, or roll back to the model before the last one too.

    ROLL_BACK is for a round whose clients already trained on a model that noise had ruined.

    >>> from adaquantfl import AdaQuant
    >>> rule = AdaQuant(s0=2)
    >>> rule.judge(rule.init(), round_loss=2.3)[1]
    <Verdict.KEEP: 0>
    """

    KEEP = 0
    REJECT = 1
    ROLL_BACK = 2


class Rule(ABC):
    """Chooses s for each round. A rule of your own has `init`, and `plan` where s changes:

    >>> class Doubling(Rule):
    ...     def init(self):
    ...         return RuleState(s=1)
    ...     def plan(self, state, **_):
    ...         return RuleState(s=2 * state.s)
    >>> rule = Doubling()
    >>> rule.plan(rule.init(), bits=0, dimension=100, loss=2.3, eta=0.1).s
    2
    """

    name: ClassVar[str] = ""  # by which a written-down state finds the rule again
    balanced = False  # whether small tensors get more levels, where the scope is "tensor" and the quantizer can
    rolls_back = False  # whether it may take rounds back, for which the server keeps the state before the present one
    negative_loss = False  # whether a loss below 0 makes sense to it; otherwise such a reply is refused
    usual_quantizer: ClassVar[str] = "uniform"  # where none is named
    may_be_late = False  # whether clients may have to keep a part of an update for later rounds: `RuleState.later`
    round_loss = False  # whether it takes the last round's mean mini-batch loss, which is free, whatever f(w_k) is

    @property
    def client_choice(self) -> tuple[str, float] | None:
        """Where each client chooses s from its own update: the rule's name and a number; see `choose_levels`."""
        return None

    @staticmethod
    def choose_levels(number: float, update: npt.NDArray[np.float32]) -> float:
        """A client's s for its update, for rules with a `client_choice`, whose number is passed in."""
        raise RuleError("This rule leaves the choice of levels to the server.")

    @property
    def chooses_by_error(self) -> bool:
        """Whether clients choose by the error of their updates, for which a quantizer must have levels to choose."""
        return type(self).choose.__func__ is not Rule.choose.__func__  # type: ignore[attr-defined]

    def client_number(self, state: RuleState, mixing: Mixing) -> float:
        """The number of a `client_choice` in this round."""
        assert self.client_choice is not None
        return self.client_choice[1]

    @classmethod
    def choose(cls, number: float, update: npt.NDArray[np.float32], coarsest: Callable[[float], float]) -> float:
        """A client's s for its update. coarsest: the fewest levels whose error is at most this share of its energy."""
        return cls.choose_levels(number, update)

    @classmethod
    def of_config(cls, config: Any) -> Rule:
        """The rule for a run's configuration; a rule of your own may read its keys here."""
        return cls()

    @abstractmethod
    def init(self) -> RuleState:
        """The state before the first round."""

    def wants_loss(self, state: RuleState, bits: float) -> bool:
        """Whether `plan` at this many paper bits per client would use the global loss."""
        return False

    def wants_survey(self, state: RuleState) -> bool:
        """Whether the clients of the round that this state is for are to send a survey."""
        return False

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
        """The state for the next round, given the paper bits that one client has sent, f(w_k) and the rate.

        survey: of the last round, where it was wanted. A rule that looks at nothing leaves the state as it is.
        """
        return state

    def judge(self, state: RuleState, round_loss: float, survey: Survey | None = None) -> tuple[RuleState, Verdict]:
        """The state after a round with this mean mini-batch loss and this survey, and whether its update counts.

        The loss is infinite where training has diverged on too many clients for the round to count without them.
        """
        return state, Verdict.KEEP

    def wants_energies(self, state: RuleState, mixing: Mixing) -> bool:
        """Whether the server is to measure the energies of the round that this state is for."""
        return False

    def learn(self, state: RuleState, energies: Energies) -> RuleState:
        """The state after a round that counts, with the energies of its updates."""
        return state

    def candidates(self, s: float) -> tuple[float, ...]:
        """The numbers of levels that a survey looks at when s is in use."""
        return ()

    def levels_by_weight(self, s: float, weights: Mapping[int, float]) -> dict[int, float] | None:
        """The levels of each client where they depend on its weight p_i; None where all have s."""
        return None
