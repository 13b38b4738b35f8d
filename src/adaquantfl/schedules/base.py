"""What a schedule is: settings and pure methods. What changes lives in a state that is passed in and returned."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class ScheduleState:
    """Where a schedule stands: all it needs to go on after a restart.

    s: the levels to use now; None is float32, not quantized. f0, eta0: the start, as first seen. boundary: the paper
    bits a client must have sent before s is chosen anew.
    """

    s: int | None
    f0: float | None = None
    eta0: float | None = None
    boundary: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON.

        >>> ScheduleState(**ScheduleState(3).to_dict()) == ScheduleState(3)
        True
        """
        return asdict(self)


class Schedule(Protocol):
    """Chooses s for each round."""

    def init(self) -> ScheduleState:
        """The state before the first round."""

    def wants_loss(self, state: ScheduleState, bits: float) -> bool:
        """Whether `step` at this many paper bits a client would use the global loss."""

    def step(
        self, state: ScheduleState, *, bits: float, dimension: int, loss: float | None, eta: float
    ) -> ScheduleState:
        """The state for the next round, given the paper bits a client has sent, f(w_k) and the learning rate."""
