"""The paper's stochastic uniform quantizer Q_s (eq. 4 and 5).

Q_s(w_i) = ||w||_2 sign(w_i) zeta_i. zeta_i is one of the two multiples of 1/s around |w_i| / ||w||_2, chosen at random
so that the mean is right. `Levels` holds the integers s * sign(w_i) * zeta_i and the norm. With norm "linf" the
largest magnitude takes the place of ||w||_2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..memory import empty
from ..threads import over_ranges
from . import kernels
from .base import L2, LINF, Lengths, Quantizer, Traits
from .levels import Levels, level_dtype
from .segments import Segments
from .streams import split_key
from .vectors import FloatVector, Stretch, check_levels, scaled

_TINY = np.float32(2.0**-90)  # below it s / scale leaves the range of float32
_LIFT = np.float32(2.0**90)


class Uniform(Quantizer):
    """Q_s, the paper's."""

    name = "uniform"
    tags: ClassVar = {L2: 0, LINF: 1}
    traits = Traits(
        about="the paper's: s equal steps of the norm, rounded at random",
        reference="Jhunjhunwala et al. 2021, eq. 4 (Alistarh et al. 2017, QSGD)",
        balanced=True,
        linear=True,
        from_paper=True,
    )

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -s to s of the norm: see `levels.quantize`."""
        ready = Prepared.of(x, s, segments, stretch, norm)
        low, high = split_key(key)
        values = ready.levels(0, ready.segments.dimension, s, low, high)
        return ready.as_levels(values, s, None if segments is None else ready.segments.lengths)


QUANTIZER = Uniform()
QUANTIZERS = (QUANTIZER,)


def expected_error(
    x: npt.NDArray[np.float32], s: int, stretch: Stretch, segments: npt.NDArray[np.int64] | None
) -> float:
    """E||Q(x) - x||^2 / ||x||^2 with the l2 norm: an element adds its step squared times p (1 - p).

    >>> expected_error(np.array([3.0, 4.0], dtype=np.float32), 5, 1.0, None)
    0.0
    """
    total = energy = 0.0
    parts = np.split(x, Segments.of(segments, len(x)).offsets[1:-1])
    for part, factor in zip(parts, np.broadcast_to(stretch, len(parts)), strict=True):
        square = float(np.dot(part.astype(np.float64), part))
        if square > 0.0:
            step = factor * np.sqrt(square) / s
            p = np.abs(part) * np.float32(1 / step)
            p -= np.floor(p)
            total += step**2 * float(np.sum(p * (1 - p), dtype=np.float64))
            energy += square
    return float(total / energy) if energy else 0.0


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
    def of(x: FloatVector, s: int, lengths: Lengths | None, stretch: Stretch = 1.0, norm: str = L2) -> Prepared:
        check_levels(s)
        vector, segments, scales = scaled(x, lengths, stretch, norm)
        arithmetic = np.float32 if s <= kernels.SINGLE_LEVELS else np.float64
        if len(scales) == 1 and scales[0] >= _TINY:  # what most vectors are, and a short one should not wait
            return Prepared(
                vector, segments, scales, np.array([s / float(scales[0])], dtype=arithmetic), arithmetic(s), norm
            )
        tiny = (scales > 0) & (scales < _TINY)
        working = scales
        if tiny.any():  # multiply by a power of two, which changes no ratio
            lift = np.where(tiny, _LIFT, np.float32(1))
            vector = vector * np.repeat(lift, segments.lengths)
            working = scales * lift
        with np.errstate(divide="ignore"):
            inverse = np.where(working > 0, np.float64(s) / working, 0.0)
        return Prepared(vector, segments, scales, inverse.astype(arithmetic), arithmetic(s), norm)

    @property
    def tag(self) -> int:
        """The quantizer's tag in a frame."""
        return QUANTIZER.tags[self.norm]

    def levels(self, start: int, stop: int, s: int, low: np.uint32, high: np.uint32) -> npt.NDArray[np.signedinteger]:
        """The signed levels of elements start to stop, in the stream of the key (low, high)."""
        values = empty(stop - start, level_dtype(s))
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
