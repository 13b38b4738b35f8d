"""Balanced levels: more for small segments and fewer for large ones, at the same number of non-zeros.

A segment sends about s_t l_t non-zeros, l_t = ||x_t||_1 / ||x_t||_2, and its noise is proportional to l_t / s_t. In a
large tensor the noise spreads over many directions, so it hurts no more than in a small one. In a small tensor levels
are cheap. So s_t is proportional to l_t^(-1/2).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..theory import MAX_LEVELS
from .base import L2, Lengths
from .segments import Segments
from .vectors import FloatVector, float32_vector, norms

_ROUNDING = 1e-6  # how far float32 norms may be off


def balanced_levels(s: float, ratios: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The number of levels of each segment, where s would be that of all; ratios: l_t.

    >>> balanced_levels(1.0, np.array([2.0, 1.0])).round(3).tolist()
    [0.879, 1.243]
    """
    levels: npt.NDArray[np.float64] = s * ratios.sum() / (np.sqrt(ratios) * np.sqrt(ratios).sum())
    return levels


def balanced_range(s: float, longest: int, most: int = MAX_LEVELS) -> tuple[int, int]:
    """The least and the most s that `balanced_stretch` can give, whatever the update; longest: of the segments.

    l_t lies between 1 and the square root of the segment's length, so that s_t is at most s times its fourth root.

    >>> balanced_range(1.0, 5_000)
    (1, 9)
    """
    largest = s * longest**0.25
    return min(math.ceil(s * (1 - _ROUNDING)), most), min(math.ceil(largest * (1 + _ROUNDING)), most)


def balanced_stretch(
    x: FloatVector, s: float, segments: Lengths, most: int = MAX_LEVELS
) -> tuple[int, npt.NDArray[np.float64]]:
    """What `quantize` takes, for an update: s, `most` at most, and a stretch for each segment.

    >>> s, stretch = balanced_stretch(np.array([1, 1, 1, 1, 5], dtype=np.float32), 1, [4, 1])
    >>> (s / stretch).round(3).tolist()  # levels of each segment; l is 2 and 1
    [0.879, 1.243]
    """
    vector = float32_vector(x)
    cut = Segments.of(segments, len(vector))
    own = norms(vector, cut, L2).astype(np.float64)
    sums = np.add.reduceat(np.abs(vector), cut.offsets[:-1], dtype=np.float64)
    levels = balanced_levels(s, np.maximum(np.divide(sums, own, out=np.ones_like(own), where=own > 0), 1.0))
    whole = min(math.ceil(levels.max()), most)
    return whole, np.maximum(whole / levels, 1.0)
