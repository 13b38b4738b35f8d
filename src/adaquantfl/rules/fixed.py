"""The baselines: the same s in every round, or no quantization at all."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import RuleError
from .base import Rule, RuleState


@dataclass(frozen=True)
class Fixed(Rule):
    """b bits per element without the sign, in every round: s = 2^b - 1.

    >>> Fixed(bits=4).init().s
    15
    """

    bits: int = 4
    name = "fixed"
    negative_loss = True

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 1 <= self.bits <= 16:
            raise RuleError(f"bits = {self.bits!r}: a fixed level has a whole number of bits from 1 to 16.")

    def init(self) -> RuleState:
        return RuleState(s=2**self.bits - 1)


@dataclass(frozen=True)
class FullPrecision(Rule):
    """Float32 updates, not quantized: the reference.

    >>> FullPrecision().init().s is None
    True
    """

    name = "fp32"
    negative_loss = True

    def init(self) -> RuleState:
        return RuleState(s=None)
