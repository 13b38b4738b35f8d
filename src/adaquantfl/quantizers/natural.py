"""Natural dithering (Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019): levels that halve.

The grid is 0, 2^(1-s), ..., 1/4, 1/2, 1 times the norm. An element goes to one of its two neighbours, at random so that
the mean is right. Level k stands for 2^(k-s) times the norm, so that a sender and a receiver only move exponents. The
authors bound the error by 1/8 ||x||^2 for what lies above the smallest level, plus
min(d^(1/2) 2^(1-s), d 2^(2-2s)) ||x||^2 for what lies below. With many levels it is their natural compression, which
rounds every float to a power of two.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..jit import kernel
from ..threads import over_ranges
from .base import L2, LINF, Lengths, Quantizer
from .kernels import UNIT, WEYL, draw31, stream_start
from .levels import Levels, level_dtype
from .streams import split_key
from .vectors import FloatVector, Stretch, inverses, scaled


class Natural(Quantizer):
    """Levels that halve."""

    name = "natural"
    about = "levels that halve: norm, norm / 2, norm / 4, ..., rounded at random"
    reference = "Horvath et al. 2019, natural dithering"
    tags: ClassVar = {L2: 11, LINF: 12}
    most = 127

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -s to s: k is 2^(k-s) of the norm."""
        vector, parts, scales = scaled(x, segments, stretch, norm)
        (low, high), (bounds, owner) = split_key(key), parts.pieces
        values, inverse = np.empty(len(vector), dtype=level_dtype(s)), inverses(scales, 1)

        def work(first: int, last: int) -> None:
            round_exponents(vector, bounds, owner, inverse, s, low, high, values, first, last)

        over_ranges(work, len(owner), smallest=4)
        whole = segments is None
        return Levels(values, scales[0] if whole else scales, s, None if whole else parts.lengths, self.name, norm)

    def growth(self, s: int, numbers: npt.NDArray[np.float32] | None = None) -> float:
        return 1.0

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """scale sign(k) 2^(|k|-s), and 0 for 0."""
        sizes = 2.0 ** np.arange(1 - levels.s, 1, dtype=np.float64)
        table = np.concatenate([-sizes[::-1], [0.0], sizes])
        each = np.repeat(levels.scales.astype(np.float64), np.diff(levels.offsets))
        return (table[levels.values.astype(np.int64) + levels.s] * each).astype(np.float32)


QUANTIZER = Natural()


@kernel
def round_exponents(x, bounds, owner, inverse, s, low, high, values, first, last):
    """values = signed levels of the pieces first to last."""
    smallest = 2.0 ** (1 - s)
    for piece in range(first, last):
        inv, place = inverse[owner[piece]], stream_start(bounds[piece], low)
        source, out = x[bounds[piece] : bounds[piece + 1]], values[bounds[piece] : bounds[piece + 1]]
        for j in range(len(source)):
            t = np.float64(min(np.float64(abs(source[j])) * inv, 1.0))
            draw = draw31(np.uint32(place + np.uint32(np.uint32(j) * WEYL)), high) * UNIT
            exponent = np.int64(t.view(np.int64) >> 52) - 1023  # 2^exponent <= t < 2^(exponent + 1)
            if t < smallest:
                level = np.int64(draw < t / smallest)
            else:
                below = np.int64(np.int64(exponent + 1023) << 52).view(np.float64)
                level = s + exponent + np.int64(draw < (t - below) / below)
            out[j] = -level if source[j] < 0 else level
