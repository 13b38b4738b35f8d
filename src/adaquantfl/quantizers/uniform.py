"""The paper's stochastic uniform quantizer Q_s (eq. 4 and 5) and its bit count C_s (eq. 6).

Q_s(w_i) = ||w||_2 sign(w_i) zeta_i, where zeta_i is one of the two multiples of 1/s around |w_i| / ||w||_2, chosen at
random so that the mean is right. `Levels` holds the integers s * sign(w_i) * zeta_i and the norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import QuantizeError
from ..theory import MAX_LEVELS
from ..threads import over_ranges
from . import kernels
from .segments import Segments
from .streams import split_key

MAX_DIMENSION = 2**32  # an element's random number comes from its 32-bit index
_TINY = np.float32(2.0**-90)  # below it s / scale leaves the range of float32
_LIFT = np.float32(2.0**90)

FloatVector = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Stretch = float | npt.NDArray[np.float64]  # for all segments, or one for each


@dataclass(frozen=True, eq=False)
class Levels:
    """A quantized vector: element i is scale * values[i] / s.

    `scale` is one float32, or with `segments` (their lengths) an array with one float32 for each segment.
    """

    values: npt.NDArray[np.signedinteger]
    scale: np.float32 | npt.NDArray[np.float32]
    s: int
    segments: npt.NDArray[np.int64] | None = None

    @property
    def dimension(self) -> int:
        return len(self.values)

    @property
    def scales(self) -> npt.NDArray[np.float32]:
        """The scales as an array, also where there is only one."""
        return np.atleast_1d(np.asarray(self.scale, dtype=np.float32))

    def dequantize(self) -> npt.NDArray[np.float32]:
        """The float32 vector that a receiver works with.

        >>> quantize(np.array([3.0, -4.0], dtype=np.float32), s=5, key=0).dequantize()
        array([ 3., -4.], dtype=float32)
        """
        # In double, rounded once: a level equal to s gives back the scale exactly.
        step = self.scales.astype(np.float64) / self.s
        each = step[0] if self.segments is None else np.repeat(step, self.segments)
        return (self.values * each).astype(np.float32)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Levels):
            return NotImplemented
        mine = Segments.of(self.segments, self.dimension).offsets
        theirs = Segments.of(other.segments, other.dimension).offsets
        return (
            self.s == other.s
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(mine, theirs)
            and np.array_equal(self.values, other.values)
        )

    __hash__ = None  # type: ignore[assignment]  # holds arrays


def level_dtype(s: int) -> np.dtype[np.signedinteger]:
    """The smallest signed integer type that holds the levels -s to s.

    >>> level_dtype(127), level_dtype(128)
    (dtype('int8'), dtype('int16'))
    """
    return np.dtype(np.int8 if s <= 127 else np.int16 if s <= 32_767 else np.int32)


def quantize(
    x: FloatVector,
    s: int,
    key: int,
    segments: Sequence[int] | npt.NDArray[np.integer] | None = None,
    stretch: Stretch = 1.0,
) -> Levels:
    """Quantize a vector to levels -s to s of its l2 norm, at random and without bias.

    x: 1-D float32 or float64 array (float64 is rounded to float32 first). s: 1 to 65535; larger is finer.
    key: from `stream_key`; the same key gives the same levels. segments: lengths of runs with a norm of their own
    (the tensors of a model, or buckets); None is one norm for the whole vector. stretch: levels lie so many times
    further apart, which makes them s / stretch in number: 0.7 levels are s = 1 with stretch = 1 / 0.7. An array has
    one for each segment.

    >>> levels = quantize(np.array([0.0, 1.0, -2.0, 2.0], dtype=np.float32), s=3, key=7)
    >>> levels.values, levels.scale, levels.s
    (array([ 0,  1, -2,  2], dtype=int8), np.float32(3.0), 3)
    """
    ready = Prepared.of(x, s, segments, stretch)
    low, high = split_key(key)
    values = ready.levels(0, ready.segments.dimension, s, low, high)
    lengths = None if segments is None else ready.segments.lengths
    return Levels(values, ready.scales[0] if segments is None else ready.scales, int(s), lengths)


@dataclass(frozen=True)
class Prepared:
    """A checked float32 vector with the norm of each segment: what every quantizing kernel starts from."""

    x: npt.NDArray[np.float32]
    segments: Segments
    scales: npt.NDArray[np.float32]  # stretch ||w||_2 of each segment
    inverse: npt.NDArray[np.floating]  # s / scale, and 0 where the norm is 0; its type decides the arithmetic
    top: np.floating  # s

    @staticmethod
    def of(
        x: FloatVector, s: int, lengths: Sequence[int] | npt.NDArray[np.integer] | None, stretch: Stretch = 1.0
    ) -> Prepared:
        check_levels(s)
        vector = _float32_vector(x)
        segments = Segments.of(lengths, len(vector))
        scales = _norms(vector, segments)
        if not isinstance(stretch, float) or stretch != 1.0:
            scales = _stretched(scales, stretch)
        tiny = (scales > 0) & (scales < _TINY)
        working = scales
        if tiny.any():  # multiply by a power of two, which changes no ratio
            lift = np.where(tiny, _LIFT, np.float32(1))
            vector = vector * np.repeat(lift, segments.lengths)
            working = scales * lift
        with np.errstate(divide="ignore"):
            inverse = np.where(working > 0, np.float64(s) / working, 0.0)
        arithmetic = np.float32 if s <= kernels.SINGLE_LEVELS else np.float64
        return Prepared(vector, segments, scales, inverse.astype(arithmetic), arithmetic(s))

    def levels(self, start: int, stop: int, s: int, low: np.uint32, high: np.uint32) -> npt.NDArray[np.signedinteger]:
        """The signed levels of elements start to stop, in the stream of the key (low, high)."""
        values = np.empty(stop - start, dtype=level_dtype(s))
        bounds, owner = self.segments.pieces_within(start, stop)

        def work(first: int, last: int) -> None:
            kernels.quantize_pieces(
                self.x, bounds, owner, self.inverse, self.top, low, high, values, start, first, last
            )

        over_ranges(work, len(owner), smallest=4)
        return values


def check_levels(s: int) -> None:
    """Refuse a number of levels outside 1 to 65535."""
    if isinstance(s, bool) or not isinstance(s, int | np.integer) or not 1 <= s <= MAX_LEVELS:
        raise QuantizeError(f"s={s!r}: the number of levels is a whole number from 1 to {MAX_LEVELS}.")


def _float32_vector(x: FloatVector) -> npt.NDArray[np.float32]:
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


def whole_levels(s: float) -> tuple[int, float]:
    """A number of levels that need not be whole, as `quantize` takes it: s and stretch.

    >>> whole_levels(3), whole_levels(2.5), whole_levels(0.5)
    ((3, 1.0), (3, 1.2), (1, 2.0))
    """
    whole = math.ceil(s)
    return whole, whole / s


def balanced_stretch(
    x: FloatVector, s: float, segments: Sequence[int] | npt.NDArray[np.integer]
) -> tuple[int, npt.NDArray[np.float64]]:
    """More levels for small segments and fewer for large ones, at the number of non-zeros that s for all would give.

    A segment sends about s_t l_t non-zeros, l_t = ||x_t||_1 / ||x_t||_2, and its noise is proportional to l_t / s_t. In
    a large tensor it spreads over so many directions that it hurts no more than in a small one, where levels are
    cheap: s_t is proportional to l_t^(-1/2). Returns what `quantize` takes: s and a stretch for each segment.

    >>> s, stretch = balanced_stretch(np.array([1, 1, 1, 1, 5], dtype=np.float32), 1, [4, 1])
    >>> (s / stretch).round(3).tolist()  # levels of each segment; l is 2 and 1
    [0.879, 1.243]
    """
    vector = _float32_vector(x)
    cut = Segments.of(segments, len(vector))
    norms = _norms(vector, cut).astype(np.float64)
    sums = np.add.reduceat(np.abs(vector), cut.offsets[:-1], dtype=np.float64)
    spread = np.maximum(np.divide(sums, norms, out=np.ones_like(norms), where=norms > 0), 1.0)  # l_t
    levels = s * spread.sum() / (np.sqrt(spread) * np.sqrt(spread).sum())
    whole = min(math.ceil(levels.max()), MAX_LEVELS)
    return whole, np.maximum(whole / levels, 1.0)


def _stretched(scales: npt.NDArray[np.float32], stretch: Stretch) -> npt.NDArray[np.float32]:
    factor = np.asarray(stretch, dtype=np.float64)
    if factor.shape not in ((), scales.shape) or not ((factor >= 1.0) & (factor < math.inf)).all():
        raise QuantizeError(
            f"stretch={stretch!r}: levels can be stretched by a finite factor from 1 on, or by one for each segment."
        )
    with np.errstate(over="ignore"):
        wide = (scales * factor).astype(np.float32)
    if not np.isfinite(wide).all():
        raise QuantizeError(f"The vector's norm, {scales.max():g}, stretched by {factor.max():g} is beyond float32.")
    return wide


def _norms(x: npt.NDArray[np.float32], segments: Segments) -> npt.NDArray[np.float32]:
    bounds, owner = segments.pieces
    sums = np.empty(len(owner), dtype=np.float64)
    over_ranges(lambda first, last: kernels.square_sums(x, bounds, sums, first, last), len(owner), smallest=4)
    if not np.isfinite(sums).all():
        bad = np.flatnonzero(~np.isfinite(x))
        raise QuantizeError(
            f"The vector has {len(bad):,} NaN or infinite element(s), the first at index {bad[0]:,}. "
            "Training has probably diverged: lower the learning rate or clip the update."
        )
    # bincount adds in order, so that the sum does not depend on who computed which piece.
    norms = np.sqrt(np.bincount(owner, weights=sums, minlength=segments.count))
    if norms.max() > np.finfo(np.float32).max:
        raise QuantizeError(f"The vector's norm, {norms.max():g}, is beyond the range of float32. Scale it down first.")
    # A norm below the smallest float32 rounds to 0 and its segment to zeros.
    return norms.astype(np.float32)
