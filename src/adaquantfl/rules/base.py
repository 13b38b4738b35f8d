"""What a schedule is: settings and pure methods. What changes lives in a state that is passed in and returned.

A schedule has two halves. The server's chooses s for the round; the client's may turn it into levels of its own, or
look what other levels would do to its update (a survey), where the rule asks for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class ScheduleState:
    """Where a schedule stands: all it needs to go on after a restart.

    s: the levels to use now, which need not be whole; None is float32, not quantized. f0, eta0: the start, as first
    seen. boundary: the paper bits a client must have sent before s is chosen anew. memory: what else a rule keeps.

    >>> from adaquantfl import AdaQuant
    >>> AdaQuant(s0=2).step(ScheduleState(s=2), bits=0, dimension=100, loss=2.3, eta=0.1)
    ScheduleState(s=2, f0=2.3, eta0=0.1, boundary=1600.0, memory={})
    """

    s: float | None
    f0: float | None = None
    eta0: float | None = None
    boundary: float = 0.0
    memory: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON.

        >>> ScheduleState(**ScheduleState(3).to_dict()) == ScheduleState(3)
        True
        """
        return asdict(self)


@dataclass(frozen=True)
class Survey:
    """What several numbers of levels would have done to a round's updates.

    errors: the quantizer's variance as a share of the update's squared norm. costs: what the round would have cost.
    loss: on a sample of the clients' data, at the model that the round began with. harm: how much the noise of the
    levels that were in use raises it.

    >>> survey = Survey(levels=(1, 2, 4), errors=(9.0, 3.0, 0.8), costs=(100, 180, 350), loss=1.2, harm=0.01)
    >>> dict(zip(survey.levels, survey.costs))
    {1: 100, 2: 180, 4: 350}
    """

    levels: tuple[float, ...]
    errors: tuple[float, ...]
    costs: tuple[float, ...]
    loss: float = math.nan
    harm: float = 0.0


class Schedule(ABC):
    """Chooses s for each round. A rule of your own has `init`, and `step` where s changes:

    >>> class Doubling(Schedule):
    ...     def init(self):
    ...         return ScheduleState(s=1)
    ...     def step(self, state, **_):
    ...         return ScheduleState(s=2 * state.s)
    >>> rule = Doubling()
    >>> rule.step(rule.init(), bits=0, dimension=100, loss=2.3, eta=0.1).s
    2
    """

    clients_choose = False  # whether clients may have levels of their own
    balanced = False  # whether it spreads its levels over tensors by itself, where the scope is "tensor"
    undoes = False  # whether it may take rounds back, for which the server keeps the model before the present one
    round_loss = False  # whether it takes the last round's mean mini-batch loss, which is free, whatever f(w_k) is

    @abstractmethod
    def init(self) -> ScheduleState:
        """The state before the first round."""

    def wants_loss(self, state: ScheduleState, bits: float) -> bool:
        """Whether `step` at this many paper bits a client would use the global loss."""
        return False

    def wants_survey(self, state: ScheduleState) -> bool:
        """Whether the clients of the round that this state is for are to send a survey."""
        return False

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
        """The state for the next round, given the paper bits a client has sent, f(w_k) and the learning rate.

        survey: of the last round, where it was wanted. A rule that looks at nothing leaves the state as it is.
        """
        return state

    def hear(self, state: ScheduleState, round_loss: float, survey: Survey | None = None) -> tuple[ScheduleState, int]:
        """The state after a round with this mean mini-batch loss and this survey, and how many rounds are taken back.

        0: none. 1: this one, so that its model stays. 2: also the one before, whose noise its clients trained on. The
        loss is infinite where training has diverged on so many clients that the round cannot go on without them.
        """
        return state, 0

    def candidates(self, s: float) -> tuple[float, ...]:
        """The numbers of levels that a survey looks at when s is in use."""
        return ()

    def client_levels(self, s: float, weights: Sequence[float], client: int, update: npt.NDArray[np.float32]) -> float:
        """The levels that a client takes for its update. weights: p_i of all clients."""
        return s
