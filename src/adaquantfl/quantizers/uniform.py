"""The paper's stochastic uniform quantizer Q_s (eq. 4 and 5).

Q_s(w_i) = ||w||_2 sign(w_i) zeta_i, where zeta_i is one of the two multiples of 1/s around |w_i| / ||w||_2, chosen at
random so that the mean is right. `Levels` holds the integers s * sign(w_i) * zeta_i and the norm. With norm "linf" the
largest magnitude takes the place of ||w||_2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..theory import MAX_LEVELS
from ..threads import over_ranges
from . import kernels
from .levels import Levels, level_dtype
from .registry import L2, QUANTIZERS
from .segments import Segments
from .streams import split_key
from .vectors import FloatVector, Stretch, check_levels, float32_vector, norms, scaled

_TINY = np.float32(2.0**-90)  # below it s / scale leaves the range of float32
_LIFT = np.float32(2.0**90)


def quantize(
    x: FloatVector,
    s: int,
    key: int,
    segments: Sequence[int] | npt.NDArray[np.integer] | None = None,
    stretch: Stretch = 1.0,
    norm: str = L2,
) -> Levels:
    """Levels -s to s of the norm: see `levels.quantize`."""
    ready = Prepared.of(x, s, segments, stretch, norm)
    low, high = split_key(key)
    values = ready.levels(0, ready.segments.dimension, s, low, high)
    return ready.as_levels(values, s, None if segments is None else ready.segments.lengths)


def dequantize(levels: Levels) -> npt.NDArray[np.float32]:
    """scale x level / s."""
    return levels.times(levels.scales.astype(np.float64) / levels.s)


@dataclass(frozen=True)
class Prepared:
    """A checked float32 vector with the norm of each segment: what every quantizing kernel starts from."""

    x: npt.NDArray[np.float32]
    segments: Segments
    scales: npt.NDArray[np.float32]  # stretch x the norm of each segment
    inverse: npt.NDArray[np.floating]  # s / scale, and 0 where the norm is 0; its type decides the arithmetic
    top: np.floating  # s
    norm: str = L2

    @staticmethod
    def of(
        x: FloatVector,
        s: int,
        lengths: Sequence[int] | npt.NDArray[np.integer] | None,
        stretch: Stretch = 1.0,
        norm: str = L2,
    ) -> Prepared:
        check_levels(s)
        vector, segments, scales = scaled(x, lengths, stretch, norm)
        tiny = (scales > 0) & (scales < _TINY)
        working = scales
        if tiny.any():  # multiply by a power of two, which changes no ratio
            lift = np.where(tiny, _LIFT, np.float32(1))
            vector = vector * np.repeat(lift, segments.lengths)
            working = scales * lift
        with np.errstate(divide="ignore"):
            inverse = np.where(working > 0, np.float64(s) / working, 0.0)
        arithmetic = np.float32 if s <= kernels.SINGLE_LEVELS else np.float64
        return Prepared(vector, segments, scales, inverse.astype(arithmetic), arithmetic(s), norm)

    @property
    def tag(self) -> int:
        """The quantizer's tag in a frame."""
        return QUANTIZERS["uniform"].tags[self.norm]

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

    def as_levels(self, values: npt.NDArray[np.signedinteger], s: int, lengths: npt.NDArray[np.int64] | None) -> Levels:
        """Levels of these values; lengths: None where the caller named no segments."""
        return Levels(values, self.scales[0] if lengths is None else self.scales, s, lengths, norm=self.norm)


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
    vector = float32_vector(x)
    cut = Segments.of(segments, len(vector))
    own = norms(vector, cut, L2).astype(np.float64)
    sums = np.add.reduceat(np.abs(vector), cut.offsets[:-1], dtype=np.float64)
    spread = np.maximum(np.divide(sums, own, out=np.ones_like(own), where=own > 0), 1.0)  # l_t
    levels = s * spread.sum() / (np.sqrt(spread) * np.sqrt(spread).sum())
    whole = min(math.ceil(levels.max()), MAX_LEVELS)
    return whole, np.maximum(whole / levels, 1.0)
