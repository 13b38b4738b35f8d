"""Stochastic uniform levels of a randomly rotated vector (Suresh, Yu, Kumar, McMahan, ICML 2017).

y = H D x; Q(x) = D H Q_s(y), with Q_s the paper's rounding on s steps of max |y| (their scale; norm "l2" takes
||y||_2 = ||x||_2). Rotation spreads large elements, so that the error of the mean of n vectors falls from O(d / s^2) to
O(log d / s^2) with the same bits. Unbiased, because the rounding is and H D is orthonormal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .base import L2, LINF, Lengths, Quantizer, Traits
from .levels import Levels
from .rotation import Turned, rotate_back
from .uniform import QUANTIZER as UNIFORM
from .vectors import FloatVector, Stretch


class Rotated(Quantizer):
    """The uniform quantizer, after a random rotation."""

    name = "rotated"
    tags: ClassVar = {LINF: 2, L2: 3}
    traits = Traits(
        about="uniform after a random rotation",
        reference="Suresh, Yu, Kumar, McMahan 2017",
        keyed=True,
        rotates=True,
    )

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -s to s of the norm of each rotated block."""
        turned = Turned.of(x, segments, key)
        levels = UNIFORM.quantize(turned.y, s, key, turned.parts.lengths, stretch, norm)
        return replace(levels, quantizer=self.name, key=int(key))

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """The uniform quantizer's vector, rotated back."""
        return rotate_back(UNIFORM.dequantize(levels), levels.offsets, levels.key or 0)


QUANTIZERS = (Rotated(),)
