"""Sparse ternary compression (Sattler, Wiedemann, Mueller, Samek, IEEE TNNLS 2019): the largest 1/s of the elements.

Those are sent as plus or minus their mean magnitude, the others as 0. Here s is the sparsity: s = 400 keeps 1 in 400,
at least one of a segment. It is biased and meant for error feedback: what was left out is added to the next update.

    update = update + remainder
    levels = aq.quantize(update, s=400, key=key, quantizer="stc")
    remainder = levels.remainder(update)

The authors report the accuracy of federated averaging at 1/400 with about a hundredth of its uplink bits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .base import NO_NORM, Lengths, Quantizer
from .levels import Levels
from .segments import Segments
from .vectors import FloatVector, Stretch, float32_vector, square_sums


class SparseTernary(Quantizer):
    """The largest 1/s of the elements."""

    name = "stc"
    about = "the largest 1/s of the elements, at plus or minus their mean size (biased; with error feedback)"
    reference = "Sattler, Wiedemann, Mueller, Samek 2019, STC"
    tags: ClassVar = {NO_NORM: 13}
    follows_rule = False
    own_levels = "sparsity"
    stretches = False
    unbiased = False
    feedback = True
    linear = True
    divides = False
    reach = (0, 1)

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -1, 0 and 1; the scale is the mean magnitude of the elements kept. The key is not used."""
        vector = float32_vector(x)
        parts = Segments.of(segments, len(vector))
        square_sums(vector, parts)  # refuses NaN
        values, scales = np.zeros(len(vector), dtype=np.int8), np.empty(parts.count, dtype=np.float32)
        for j, (first, last) in enumerate(pairwise(parts.offsets.tolist())):
            piece = vector[first:last]
            kept = largest(piece, max(1, len(piece) // s))
            values[first + kept] = np.sign(piece[kept])
            scales[j] = np.abs(piece[kept]).mean(dtype=np.float64)
        whole = segments is None
        return Levels(values, scales[0] if whole else scales, s, None if whole else parts.lengths, self.name, NO_NORM)


QUANTIZER = SparseTernary()


def largest(x: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int64]:
    """Where the `count` elements of the largest magnitude are; of equal ones the first.

    >>> largest(np.array([1.0, -3.0, 3.0, 3.0], dtype=np.float32), 2).tolist()
    [1, 2]
    """
    sizes = np.abs(x)
    threshold = np.partition(sizes, len(x) - count)[len(x) - count]
    above = np.flatnonzero(sizes > threshold)
    return np.concatenate([above, np.flatnonzero(sizes == threshold)[: count - len(above)]])
