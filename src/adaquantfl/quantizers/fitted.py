"""Ours, for error feedback: rounding to the nearest level, with the step that fits best by least squares.

Levels are those of `nearest`: k = round(s x / max |x|), halves to the even one. The step that a receiver multiplies
them with is <x, k> / <k, k> of each segment instead of max |x| / s. No other step leaves out less of x. The error,
||Q(x) - x||^2 = ||x||^2 - ||Q(x)||^2, is below the update's own energy, however few levels there are. Clients add what
they left out to their next update, and need that. The coarser the levels, the more is gained.

Balanced, all segments have one step, and so one threshold below which elements wait for a later round. With an ideal
code no other division of the levels among the segments leaves out less at equal bytes (reverse water-filling). Each has
a fitted step of its own.

`nearest`, which it is made of, is plain rounding: nothing is random, and no error is above half a step. It is biased:
what is below half a step would be lost in every round without error feedback. The norm is the largest magnitude. So
something is always sent, as long as a step is less than twice that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .. import core
from .base import LINF, Lengths, Quantizer, Traits, Vector, whole_levels
from .levels import Levels, level_dtype
from .segments import Segments
from .streams import checked_key
from .vectors import FloatVector, Stretch, energy, float32_vector, inverses, largest, scaled

_TILE = 1 << 16  # elements that are summed at a time


class Nearest(Quantizer):
    """Rounding to the nearest level."""

    name = "nearest"
    tags: ClassVar = {LINF: 12}
    traits = Traits(
        about="uniform's steps, rounded to the nearest: no random numbers (biased; with error feedback)",
        reference="plain rounding, what int8 casts and group-wise quantizers do",
        unbiased=False,
        feedback=True,
        linear=True,
    )

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -s to s of the norm; the key is checked and not used."""
        checked_key(key)
        vector, cut, scales = scaled(x, segments, stretch, norm)
        values = core.round_nearest(vector, cut.offsets, inverses(scales, s), s, level_dtype(s))
        return Levels(values, scales, s, cut.lengths, self.name, norm)


class Fitted(Nearest):
    """Nearest levels; the step is fitted to them."""

    name = "fitted"
    tags: ClassVar = {LINF: 13}
    traits = replace(
        Nearest.traits,
        about="ours: rounded to the nearest, the step fitted by least squares (biased; with error feedback)",
        reference="this software; least squares, as in the scale of 1-bit SGD with error feedback",
        balanced=True,
        least=0.51,  # half a step is then a little below the largest magnitude, so that something is always sent
    )

    def levels_for_count(
        self, count: float, segments: npt.NDArray[np.int64], x: Vector | None, balanced: bool
    ) -> tuple[int, Stretch]:
        """Balanced: s levels for the segment with the largest magnitude, and its step for all segments.

        >>> update = np.array([1, 4, 2], dtype=np.float32)
        >>> s, stretch = Fitted().levels_for_count(2.0, np.array([2, 1]), update, balanced=True)
        >>> (s / stretch).tolist()  # levels of each segment
        [2.0, 1.0]
        """
        if not balanced or x is None:
            return super().levels_for_count(count, segments, x, balanced)
        whole, wide = whole_levels(max(count, self.traits.least), self.traits.most)
        sizes = largest(x, Segments.of(segments, len(x))).astype(np.float64)
        return whole, wide * np.divide(sizes.max(), sizes, out=np.ones_like(sizes), where=sizes > 0)

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -s to s of the norm, and s times the fitted step instead of the norm.

        >>> import adaquantfl as aq
        >>> levels = aq.quantize(np.array([4.0, 3.0, 1.0]), s=1, key=0, quantizer="fitted")
        >>> levels.values.tolist(), float(levels.scale)
        ([1, 1, 0], 3.5)
        """
        levels = super().quantize(x, s, key, segments, stretch, norm)
        dots, squares = _sums(float32_vector(x), levels)
        scales = (s * np.divide(dots, squares, out=np.zeros_like(dots), where=squares > 0)).astype(np.float32)
        return replace(levels, scale=scales)

    def error_of(self, x: Vector, levels: Levels) -> float:
        """1 - ||Q(x)||^2 / ||x||^2."""
        whole, (_, squares) = energy(x), _sums(None, levels)
        return max(1.0 - float(np.dot(levels.steps**2, squares)) / whole, 0.0) if whole else 0.0


QUANTIZERS = (Nearest(), Fitted())


def _sums(x: npt.NDArray[np.float32] | None, levels: Levels) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """<x, k> and <k, k> of each segment, in float64 and in one order, whatever the number of threads."""
    offsets, values = levels.offsets, levels.values
    dots, squares = np.zeros(len(offsets) - 1), np.zeros(len(offsets) - 1)
    for place, (first, last) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        for start in range(first, last, _TILE):
            k = values[start : min(start + _TILE, last)].astype(np.float32)
            squares[place] += float(np.sum(k * k, dtype=np.float64))
            if x is not None:
                dots[place] += float(np.sum(k * x[start : min(start + _TILE, last)], dtype=np.float64))
    return dots, squares
