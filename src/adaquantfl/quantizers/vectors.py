"""What every quantizer asks of a vector: that it is one, and the norms of its segments."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .. import core
from ..errors import QuantizeError
from ..theory import MAX_LEVELS
from .base import LINF, Lengths
from .segments import Segments

MAX_DIMENSION = 2**32  # an element's random number comes from its 32-bit index

_TILE = 1 << 16  # elements that are looked at together, so that nothing as long as the vector is made
_FLOAT32 = np.dtype(np.float32)
_FLOAT32_MAX = float(np.finfo(np.float32).max)
FloatVector = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Stretch = float | npt.NDArray[np.float64]  # for all segments, or one for each


def check_levels(s: int, most: int = MAX_LEVELS) -> None:
    """Refuse a number of levels outside 1 to 65535, or to `most`."""
    if isinstance(s, bool) or not isinstance(s, int | np.integer) or not 1 <= s <= most:
        raise QuantizeError(f"s={s!r}: the number of levels is a whole number from 1 to {most}.")


def float32_vector(x: FloatVector) -> npt.NDArray[np.float32]:
    """A checked vector as contiguous float32; NaN and infinite elements are left to `norms`."""
    if isinstance(x, np.ndarray) and x.dtype == _FLOAT32 and x.ndim == 1 and 0 < x.size <= MAX_DIMENSION:
        return np.ascontiguousarray(x)
    array = np.asarray(x)
    if array.ndim != 1:
        raise QuantizeError(f"Expected a 1-D array, got one of shape {array.shape}. Flatten it with x.ravel().")
    if array.size == 0:
        raise QuantizeError("The vector is empty: there is nothing to quantize.")
    if array.size > MAX_DIMENSION:
        raise QuantizeError(f"{array.size:,} elements are too many for one vector (2^32 at most). Split it in parts.")
    if array.dtype not in (np.float32, np.float64):
        raise QuantizeError(f"Expected float32 or float64 elements, got {array.dtype}. Convert with x.astype('f4').")
    if array.dtype == np.float64:
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32)
        if np.isinf(narrow).any() and np.isfinite(array).all():
            raise QuantizeError(
                f"The largest element, {np.abs(array).max():g}, is beyond the range of float32 (3.4e38). "
                "Scale the vector down first."
            )
        array = narrow
    return np.ascontiguousarray(array, dtype=np.float32)


def scaled(
    x: FloatVector, lengths: Lengths | None, stretch: Stretch, norm: str
) -> tuple[npt.NDArray[np.float32], Segments, npt.NDArray[np.float32]]:
    """What most quantizers begin with: the checked vector, its segments, and the stretched norm of each."""
    vector = float32_vector(x)
    segments = Segments.of(lengths, len(vector))
    return vector, segments, stretched(norms(vector, segments, norm), stretch)


def norms(x: npt.NDArray[np.float32], segments: Segments, norm: str) -> npt.NDArray[np.float32]:
    """The norm of each segment, l2 or linf. NaN, infinite elements and norms beyond float32 are refused."""
    if norm == LINF:
        return largest(x, segments)
    sums = square_sums(x, segments)
    if len(sums) == 1 and sums[0] < _FLOAT32_MAX:  # its root is in range
        return np.array([math.sqrt(sums[0])], dtype=np.float32)
    euclidean = np.sqrt(sums)
    if euclidean.max() > _FLOAT32_MAX:
        raise QuantizeError(
            f"The vector's norm, {euclidean.max():g}, is beyond the range of float32. Scale it down first."
        )
    # A norm below the smallest float32 rounds to 0 and its segment to zeros.
    return euclidean.astype(np.float32)


def largest(x: npt.NDArray[np.float32], segments: Segments) -> npt.NDArray[np.float32]:
    """The largest magnitude of each segment; NaN and infinite elements are refused."""
    return core.largest(x, segments.offsets)


def square_sums(x: npt.NDArray[np.float32], segments: Segments) -> npt.NDArray[np.float64]:
    """The sum of squares of each segment, in double; NaN and infinite elements are refused."""
    return core.squares(x, segments.offsets)


def energy(x: FloatVector) -> float:
    """Return ||x||^2 in double.

    >>> energy(np.array([3.0, -4.0], dtype=np.float32))
    25.0
    """
    return dot(x, x)


def dot(a: FloatVector, b: FloatVector) -> float:
    """Return <a, b> in double: bit for bit the sum that NumPy makes of the products, which would be twice the vector.

    It does without BLAS, whose sums depend on the number of threads.

    >>> dot(np.array([3.0, -4.0], dtype=np.float32), np.array([1.0, 2.0], dtype=np.float32))
    -5.0
    """
    if len(a) <= _TILE:
        return float(np.sum(np.multiply(a, b, dtype=np.float64)))
    half = len(a) // 2 // 8 * 8  # where NumPy's pairwise sum divides
    return dot(a[:half], b[:half]) + dot(a[half:], b[half:])


def all_finite(x: npt.NDArray[np.floating]) -> bool:
    """Whether no element of a vector is NaN or infinite.

    >>> all_finite(np.array([1.0, np.nan]))
    False
    """
    return all(bool(np.isfinite(x[start : start + _TILE]).all()) for start in range(0, len(x), _TILE))


def check_stretch(stretch: Stretch, segments: int | None = None) -> None:
    """Refuse what is not a finite factor from 1 on, or not one for each of the segments; None: one for all."""
    if segments is not None and isinstance(stretch, np.ndarray):
        if stretch.shape != (segments,) or not ((stretch >= 1.0) & (stretch < math.inf)).all():
            raise QuantizeError(f"stretch={stretch!r}: expected a finite factor from 1 on for each segment.")
    elif not (isinstance(stretch, int | float | np.number) and 1.0 <= stretch < math.inf):
        raise QuantizeError(f"stretch={stretch!r}: levels can be stretched by a finite factor from 1 on.")


def stretched(scales: npt.NDArray[np.float32], stretch: Stretch) -> npt.NDArray[np.float32]:
    """The scales, `stretch` times as large."""
    check_stretch(stretch, len(scales))
    if not isinstance(stretch, np.ndarray) and stretch == 1.0:
        return scales
    with np.errstate(over="ignore"):
        wide = (scales * np.float64(stretch)).astype(np.float32)
    if not np.isfinite(wide).all():
        most = np.max(stretch)
        raise QuantizeError(f"The vector's norm, {scales.max():g}, stretched by {most:g} is beyond float32.")
    return wide


def inverses(scales: npt.NDArray[np.float32], s: int) -> npt.NDArray[np.float64]:
    """1 / step of each segment, where the step is scale / s; 0 where the scale is 0."""
    with np.errstate(divide="ignore"):
        return np.where(scales > 0, s / scales.astype(np.float64), 0.0)
