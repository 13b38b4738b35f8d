"""The baselines: the same s in every round, or no quantization at all."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import RuleError
from .base import Plan, Rule, Seen, State
from .checks import check_start


@dataclass(frozen=True)
class Fixed(Rule):
    """The same number of levels in every round.

    Attributes:
        bits: b bits per element without the sign, so that s = 2^b - 1.
        s: the number of levels itself, which need not be whole; it replaces `bits`.

    >>> Fixed(bits=4).plan({}, Seen(bits=0, dimension=10))[1].levels
    15
    """

    bits: int = 4
    s: float | None = None
    name = "fixed"
    reference = "Alistarh et al.: QSGD, NeurIPS 2017"

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 1 <= self.bits <= 16:
            raise RuleError(f"bits = {self.bits!r}: a fixed level has a whole number of bits from 1 to 16.")
        if self.s is not None:
            check_start(self.s, "s")

    def plan(self, state: State, seen: Seen) -> tuple[State, Plan]:
        return state, Plan(levels=2**self.bits - 1 if self.s is None else self.s)


@dataclass(frozen=True)
class FullPrecision(Rule):
    """Float32 updates, not quantized: the reference.

    >>> FullPrecision().plan({}, Seen(bits=0, dimension=10))[1].quantized
    False
    """

    name = "fp32"
    reference = "McMahan et al.: FedAvg, AISTATS 2017"

    def plan(self, state: State, seen: Seen) -> tuple[State, Plan]:
        return state, Plan()
