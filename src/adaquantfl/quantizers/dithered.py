"""Subtractive dither: the sender adds a random number before rounding, the receiver takes a share of it off again.

level = round(x / step + u), value = step (level - g u), with step = scale / s and u uniform in [-1/2, 1/2) from the
stream. Plain dither (Roberts 1962; the scalar lattice of UVeQFed) has g = 1 and the error step^2 / 12 whatever x is.

The levels are those of the paper's rounding. With p the fractional part of x / step, round(x / step + u) is the upper
neighbour with probability p. So any fixed g is unbiased and costs the same bits. Its error is step^2 times
p (1 - p) (1 - g) + g^2 / 12. Let m be the mean of p (1 - p) over a segment. Then g = 6 m is best and leaves m - 3 m^2,
which is never above the paper's m (g = 0), nor above 1/12. That g is what a segment sends.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..jit import kernel, reduction
from ..threads import over_ranges
from .base import L2, LINF, Lengths, Number, Quantizer
from .kernels import WEYL, draw31, stream_start
from .levels import Levels, level_dtype
from .segments import Segments
from .streams import split_key
from .vectors import FloatVector, Stretch, per_segment, scaled

UNIT = 2.0**-31  # of a random number


class Dithered(Quantizer):
    """Subtractive dither with the best gain."""

    name = "dithered"
    about = "uniform's levels; the receiver takes part of the random numbers off again"
    reference = "subtractive dither (Roberts 1962), with a gain of our own"
    tags: ClassVar = {L2: 4, LINF: 5}
    keyed = True
    number = Number("gain", per_segment=True, least=0.0, most=1.5)

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -s to s of the norm, and the best gain of each segment."""
        vector, parts, scales = scaled(x, segments, stretch, norm)
        (low, high), (bounds, owner) = split_key(key), parts.pieces
        values, spread = np.empty(len(vector), dtype=np.int32), np.empty(len(owner))  # one kernel for all types
        inverse = inverses(scales, s)

        def work(first: int, last: int) -> None:
            round_pieces(vector, bounds, owner, inverse, float(s), low, high, values, spread, first, last)

        over_ranges(work, len(owner), smallest=4)
        gains = (6.0 * per_segment(spread, parts) / parts.lengths).astype(np.float32)
        whole = segments is None
        scale, lengths = (scales[0], None) if whole else (scales, parts.lengths)
        return Levels(values.astype(level_dtype(s)), scale, s, lengths, self.name, norm, int(key), gains)

    def growth(self, s: int, numbers: npt.NDArray[np.float32] | None = None) -> float:
        """A level, less a gain of at most 1.5 times half a step."""
        return (self.top(s) + 1) / s

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """step (level - gain u)."""
        steps = levels.scales.astype(np.float64) / levels.s
        gains = np.zeros(len(steps)) if levels.numbers is None else levels.numbers.astype(np.float64)
        (low, high), (bounds, owner) = split_key(levels.key or 0), Segments(levels.offsets).pieces
        values, out = levels.values.astype(np.int32, copy=False), np.empty(levels.dimension, dtype=np.float32)

        def work(first: int, last: int) -> None:
            undo_pieces(values, bounds, owner, steps, gains, low, high, out, first, last)

        over_ranges(work, len(owner), smallest=4)
        return out


QUANTIZER = Dithered()


def inverses(scales: npt.NDArray[np.float32], s: int) -> npt.NDArray[np.float64]:
    """1 / step of each segment; 0 where the scale is 0."""
    with np.errstate(divide="ignore"):
        return np.where(scales > 0, s / scales.astype(np.float64), 0.0)


@reduction
def round_pieces(x, bounds, owner, inverse, top, low, high, values, spread, first, last):
    """values = the levels of the pieces first to last; spread = sum of p (1 - p) of each piece."""
    for piece in range(first, last):
        inv, place = inverse[owner[piece]], stream_start(bounds[piece], low)
        source, out = x[bounds[piece] : bounds[piece + 1]], values[bounds[piece] : bounds[piece + 1]]
        total = 0.0
        for j in range(len(source)):
            t = min(max(np.float64(source[j]) * inv, -top), top)
            draw = draw31(np.uint32(place + np.uint32(np.uint32(j) * WEYL)), high)
            p = t - np.floor(t)
            total += p * (1.0 - p)
            out[j] = np.int32(min(np.floor(t + draw * UNIT), top))
        spread[piece] = total


@kernel
def undo_pieces(values, bounds, owner, steps, gains, low, high, out, first, last):
    """out = step (level - gain u)."""
    for piece in range(first, last):
        step, gain = steps[owner[piece]], gains[owner[piece]]
        place = stream_start(bounds[piece], low)
        source, target = values[bounds[piece] : bounds[piece + 1]], out[bounds[piece] : bounds[piece + 1]]
        for j in range(len(source)):
            draw = draw31(np.uint32(place + np.uint32(np.uint32(j) * WEYL)), high)
            target[j] = np.float32(step * (source[j] - gain * (draw * UNIT - 0.5)))
