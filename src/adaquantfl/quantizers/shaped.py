"""Ours: `mixed`, with noise that follows the size of rows and columns.

An update of a weight matrix has rows and columns of very different size: of neurons that are hardly active, say. Rows
and columns are divided by factors near the square root of their rms before `mixed` quantizes the update. A receiver
multiplies by them again. The factors travel in the frame; a receiver needs no shapes. The sender chooses them by the
error at equal bytes (`shaping.py`). Where factors do not pay, and where shapes are not known, it is `mixed`.

Multiplying does not change what is right on average: where `mixed` is unbiased, so is this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import QuantizeError
from .base import NO_NORM, Lengths
from .factors import multiply
from .levels import Levels
from .mixed import Mixed
from .segments import Segments
from .shaping import shaping
from .trial import FINEST
from .vectors import FloatVector, Stretch, check_stretch, float32_vector, square_sums

_RANGE = 1e-40, 1e50  # energies of a tensor that is divided: its elements then stay within float32


class Shaped(Mixed):
    """`mixed` with factors of rows and columns. shapes: of the tensors that the segments are.

    >>> x = np.outer([1.0, 0.01] * 32, np.random.default_rng(0).standard_normal(64)).astype(np.float32).ravel()
    >>> levels = Shaped([(64, 64)]).quantize(x, 40, 1, [4096], 1.0, "")
    >>> levels.factors[0].rows.exponents[:4].hex()
    '000d000d'
    """

    name = "shaped"
    about = "ours: mixed, with noise that follows the size of rows and columns"
    reference = "this software; mixed, and factors of rows and columns chosen by their error at equal bytes"
    tags: ClassVar = {NO_NORM: 17}
    shaped = True

    def __init__(self, shapes: Sequence[tuple[int, ...]] = ()) -> None:
        self.shapes = tuple(tuple(map(int, shape)) for shape in shapes)
        if any(size < 0 for shape in self.shapes for size in shape):
            raise QuantizeError("A shape has a negative size: pass those of the tensors, in their order.")

    def with_shapes(self, shapes: Sequence[tuple[int, ...]]) -> Shaped:
        return Shaped(shapes)

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels that cost as much as those of `mixed` with the same s; the factors are counted."""
        vector = float32_vector(x)
        cut = Segments.of(segments, len(vector))
        if [math.prod(shape) for shape in self.shapes] != cut.lengths.tolist():
            return super().quantize(vector, s, key, segments, stretch, norm)
        check_stretch(stretch, cut.count)
        wider, matrices = np.full(cut.count, stretch, dtype=np.float64), []
        energies = square_sums(vector, cut)
        for j in np.flatnonzero((energies > _RANGE[0]) & (energies < _RANGE[1])).tolist():
            first, last = cut.offsets[j : j + 2].tolist()
            found = shaping(vector[first:last], self.shapes[j], min(s, FINEST) / wider[j], first)
            if found:
                matrices.append(found[0])
                wider[j] = max(1.0, found[1] * wider[j])
        if not matrices:
            return super().quantize(vector, s, key, segments, stretch, norm)
        divided = vector.copy()
        multiply(divided, matrices, -1)
        return replace(super().quantize(divided, s, key, segments, wider, norm), factors=tuple(matrices))

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """As `mixed` does, then times the factors, which are 1 at most."""
        values = super().dequantize(levels)
        multiply(values, levels.factors)
        return values


QUANTIZER = Shaped()
