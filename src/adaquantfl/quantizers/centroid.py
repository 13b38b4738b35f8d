"""Ours: EDEN for an entropy coder. Rotated coordinates go to multiples of a step, and come back at their cell's mean.

y = H D x; level = round(y_i / (rms step)) with step = stretch / s; the receiver's vector is scale D H c(level), where
c(k) is the mean of N(0, 1) between (k - 1/2) step and (k + 1/2) step and scale = ||x||^2 / <y, c> as in EDEN: unbiased
for a uniformly random rotation, and with nothing drawn at random for the rounding.

Equal steps with an entropy coder behind them are the better scalar quantizer of a Gaussian (Gish and Pierce 1968): at
2 bits the error is about 0.09 ||x||^2, with EDEN's four centroids 0.133. With stretch there is no lower end to the
bits. A coordinate is cut off at 16 rms. Where every level of a block would be 0, its largest coordinate gets 1 or -1,
since a scale cannot mend a block of zeros.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..errors import QuantizeError
from ..jit import reduction
from ..threads import over_ranges
from .gaussian import step_means
from .levels import Levels, level_dtype
from .registry import NO_NORM, QUANTIZERS
from .rotation import Turned, rotate_back
from .vectors import FloatVector, check_stretch


def quantize(
    x: FloatVector,
    s: int,
    key: int,
    segments: Sequence[int] | npt.NDArray[np.integer] | None,
    stretch: float,
    norm: str,
) -> Levels:
    """Levels of rotated coordinates in steps of stretch rms / s."""
    numbers = _checked_stretch(stretch)
    top = QUANTIZERS["centroid"].top(s, numbers)
    step, turned = _step(numbers, s), Turned.of(x, segments, key)
    centres, offsets, inverse = step_means(step, top), turned.parts.offsets, turned.inverse
    values, dots = np.empty(len(turned.y), dtype=level_dtype(top)), np.empty(turned.parts.count)

    def work(first: int, last: int) -> None:
        nearest_steps(turned.y, offsets, inverse, step, top, centres, values, dots, first, last)

    over_ranges(work, turned.parts.count, smallest=2)
    return Levels(values, turned.scales(dots), s, turned.parts.lengths, "centroid", NO_NORM, int(key), numbers)


def dequantize(levels: Levels) -> npt.NDArray[np.float32]:
    """scale D H c(level)."""
    numbers = np.ones(1, dtype=np.float32) if levels.numbers is None else levels.numbers
    centres = step_means(_step(numbers, levels.s), levels.top)
    table = np.concatenate([-centres[:0:-1], centres])
    each = np.repeat(levels.scales.astype(np.float64), np.diff(levels.offsets))
    turned = (table[levels.values.astype(np.int64) + levels.top] * each).astype(np.float32)
    return rotate_back(turned, levels.offsets, levels.key or 0)


def _step(numbers: npt.NDArray[np.float32], s: int) -> float:
    """In units of the rms, from what the receiver knows too."""
    return float(numbers[0]) / s


def _checked_stretch(stretch: float) -> npt.NDArray[np.float32]:
    check_stretch(stretch)
    number = QUANTIZERS["centroid"].number
    if number is not None and stretch > number.most:
        raise QuantizeError(f"stretch={stretch!r}: centroid takes {number.most:g} at most.")
    return np.array([stretch], dtype=np.float32)


@reduction
def nearest_steps(y, offsets, inverse, step, top, centres, values, dots, first, last):
    """values = signed multiples of the step; dots = <y, c> / rms, for the blocks first to last."""
    for b in range(first, last):
        source, out = y[offsets[b] : offsets[b + 1]], values[offsets[b] : offsets[b + 1]]
        total, per_step = 0.0, inverse[b] / step
        for j in range(len(source)):
            size = np.float64(abs(source[j]))
            k = np.int32(min(size * per_step + 0.5, np.float64(top)))
            total += size * centres[k]
            out[j] = -k if source[j] < 0 else k
        if total == 0.0:
            largest = np.argmax(np.abs(source))
            total = np.float64(abs(source[largest])) * centres[1]
            out[largest] = 0 if total == 0.0 else (-1 if source[largest] < 0 else 1)
        dots[b] = total * inverse[b]
