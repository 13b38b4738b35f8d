"""Rules with a resolution: how fine is said in the units of the update, and s follows from the update's size.

FedDQ (Qu, Song and Tsui, 2022) takes the bits that the update's range needs at a fixed resolution. As updates shrink,
so do the bits: the other way round than AdaQuantFL. Its authors claim up to 65 % fewer bits and 68 % fewer rounds than
AdaQuantFL to the same accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import RuleError
from ..theory import MAX_LEVELS
from .base import Rule, RuleState


@dataclass(frozen=True)
class FixedStep(Rule):
    """Levels that lie `resolution` apart in every round: s = ||update|| / resolution, not rounded.

    >>> FixedStep.choose_levels(0.5, np.array([3, 4], dtype=np.float32))
    10.0
    """

    resolution: float = 0.01
    name = "fixed-step"
    negative_loss = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.resolution) and self.resolution > 0):
            raise RuleError(f"resolution = {self.resolution!r}: the distance of two levels is a number above 0.")

    @property
    def client_choice(self) -> tuple[str, float] | None:
        return self.name, self.resolution

    @staticmethod
    def choose_levels(number: float, update: npt.NDArray[np.float32]) -> float:
        return min(max(float(np.linalg.norm(update.astype(np.float64))) / number, 2.0**-20), MAX_LEVELS)

    def init(self) -> RuleState:
        return RuleState(s=1)  # a placeholder: each client chooses from its update


@dataclass(frozen=True)
class FedDQ(FixedStep):
    """FedDQ's bits: the range of the update's elements, divided by the resolution, rounded up to whole bits.

    For norm = "linf" and scope = "whole", where s levels on either side reach the largest element.

    >>> FedDQ.choose_levels(0.5, np.array([-3, 1], dtype=np.float32))  # 8 steps: 3 bits
    6
    """

    name = "feddq"

    @staticmethod
    def choose_levels(number: float, update: npt.NDArray[np.float32]) -> float:
        span = float(update.max()) - float(update.min())
        bits = math.ceil(math.log2(max(span / number, 2.0)))
        step = span / (2**bits - 1)
        return min(max(1, math.ceil(float(np.abs(update).max()) / step)), MAX_LEVELS) if step else 1
