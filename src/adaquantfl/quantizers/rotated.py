"""Stochastic uniform levels of a randomly rotated vector (Suresh, Yu, Kumar, McMahan, ICML 2017).

y = H D x; Q(x) = D H Q_s(y), with Q_s the paper's rounding on s steps of max |y| (their scale; norm "l2" takes
||y||_2 = ||x||_2). Rotation spreads large elements, so that the error of the mean of n vectors falls from O(d / s^2) to
O(log d / s^2) with the same bits. Unbiased, because the rounding is and H D is orthonormal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from . import uniform
from .levels import Levels
from .rotation import Turned, rotate_back
from .vectors import FloatVector, Stretch


def quantize(
    x: FloatVector,
    s: int,
    key: int,
    segments: Sequence[int] | npt.NDArray[np.integer] | None,
    stretch: Stretch,
    norm: str,
) -> Levels:
    """Levels -s to s of the norm of each rotated block."""
    turned = Turned.of(x, segments, key)
    levels = uniform.quantize(turned.y, s, key, turned.parts.lengths, stretch, norm)
    return replace(levels, quantizer="rotated", key=int(key))


def dequantize(levels: Levels) -> npt.NDArray[np.float32]:
    """The uniform quantizer's vector, rotated back."""
    return rotate_back(uniform.dequantize(levels), levels.offsets, levels.key or 0)
