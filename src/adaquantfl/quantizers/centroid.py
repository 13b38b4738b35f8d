"""Ours: EDEN for an entropy coder. Rotated coordinates go to multiples of a step, and come back at their cell's mean.

With y = H D x and step = stretch / s,

    level_i = round(y_i / (rms step)),    Q(x) = scale D H c(level),    scale = ||x||^2 / <y, c>.

c(k) is the mean of N(0, 1) between (k - 1/2) step and (k + 1/2) step. The scale is EDEN's: it makes Q unbiased for a
uniformly random rotation. Nothing is drawn at random for the rounding.

Equal steps with an entropy coder behind them are the better scalar quantizer of a Gaussian (Gish and Pierce 1968). At
2 bits the error is about 0.09 ||x||^2, with EDEN's four centroids 0.133. With stretch there is no lower end to the
bits. A coordinate is cut off at 16 rms. Where every level of a block would be 0, its largest coordinate gets 1 or -1,
since a scale cannot mend a block of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from .. import core
from ..errors import QuantizeError
from .balanced import balanced_levels
from .base import (
    MOST_BLOCK,
    NO_NORM,
    Lengths,
    Number,
    Quantizer,
    Traits,
    Vector,
    top,
    within_scales,
)
from .gaussian import exp, inverse_tail, step_errors, step_means, upper_tail
from .levels import Levels, level_dtype
from .rotation import LARGEST_BLOCK, Turned, rotate_back, runs
from .segments import Segments
from .vectors import FloatVector, Stretch, check_stretch, energy

if TYPE_CHECKING:
    from ..codecs.frame import Header

STRETCH = Number("stretch", least=1.0, most=2.0**20)
CLIP = 16.0  # rms: where rotated coordinates are cut off
_COARSEST = 16.0  # rms: beyond the largest of 2^20 Gaussian elements
_COARSE = 5.0  # rms: from here on at most one element in 80 is sent, and scales cost more than a slower rotation
_PEAK = 1 / math.sqrt(2 * math.pi)  # of the density


class Centroid(Quantizer):
    """The nearest multiple of a step for each rotated coordinate, put back at its cell's mean."""

    name = "centroid"
    tags: ClassVar = {NO_NORM: 7}
    traits = Traits(
        about="ours: rotated, to the nearest multiple of a step, put back at the mean of a Gaussian in its cell",
        reference="this software; EDEN's scale, an entropy coder's levels",
        balanced=True,  # although it rotates: a block has its segment's step
        balanced_by_update=False,
        keyed=True,
        rotates=True,
        number=STRETCH,
        clip=CLIP,
    )

    def levels_for_count(
        self, count: float, segments: npt.NDArray[np.int64], x: Vector | None, balanced: bool
    ) -> tuple[int, Stretch]:
        """As many levels are not 0 as with s levels of the l2 norm, rounded at random.

        A rule that counts levels as the paper does can then drive this quantizer: it sends about as much, and errs
        less. Elements count as Gaussian, of which E min(1, |y| / step) are not 0 with steps of sqrt(length) / s rms.
        With many levels both quantizers' steps are equal. Unless balanced, all segments have the longest one's step.

        >>> Centroid().levels_for_count(2000.0, np.array([1_000_000]), None, balanced=False)
        (3, 1.484...)
        """
        lengths = segments if balanced else segments.max(keepdims=True)
        levels = balanced_levels(count, np.sqrt(2 / np.pi * lengths))
        steps = _same_share(np.sqrt(lengths) / levels)
        whole = min(max(1, math.ceil(1 / steps.min())), self.traits.most)
        stretch = np.maximum(whole * steps, 1.0)
        return whole, stretch if balanced else float(stretch[0])

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels of rotated coordinates in steps of stretch rms / s.

        Where segments have their own stretches, the frame has the smallest, and the receiver takes its centres for
        all. The scale makes up for it: what comes back is unbiased for any centres. In steps so coarse that there are
        only levels 0 and 1 it is the same.
        """
        cut = Segments.of(segments, len(x))
        number = _checked_stretch(stretch, cut.count)
        most = top(self.traits, s, number)
        turned = Turned.of(x, segments, key, MOST_BLOCK if np.max(stretch) > _COARSE * s else LARGEST_BLOCK)
        parts = turned.parts
        steps = _each(stretch, cut, parts) / s
        centres, inverse, kind = step_means(number / s, most), turned.inverse, level_dtype(most)
        values, dots = np.empty(len(x), dtype=kind), np.empty(parts.count)
        for some, here, y in turned.pieces():
            offsets = parts.offsets[some.start : some.stop + 1] - here.start
            values[here], dots[some] = core.round_steps(y, offsets, inverse[some], steps[some], centres, most, kind)
        return Levels(values, turned.scales(dots), s, parts.lengths, self.name, NO_NORM, int(key), number)

    def error_of(self, x: Vector, levels: Levels) -> float:
        """||Q(x)||^2 / ||x||^2 - 1, without turning back: the scale makes <Q(x), x> = ||x||^2."""
        squares = step_means(_step(levels), levels.top) ** 2
        whole, total = energy(x), 0.0
        for scale, first, last in zip(levels.scales.tolist(), levels.offsets[:-1], levels.offsets[1:], strict=True):
            counts = np.bincount(np.abs(levels.values[first:last].astype(np.int32)), minlength=len(squares))
            total += scale * scale * float(np.dot(counts, squares))
        return max(total / whole - 1.0, 0.0) if whole else 0.0

    def expected_error(self, s: int, stretch: Stretch, energies: npt.NDArray[np.float64]) -> float:
        """That of Gaussian elements.

        >>> round(Centroid().expected_error(1, 1.0, np.ones(1)), 3)  # steps of one rms
        0.08...
        """
        errors = step_errors(np.atleast_1d(np.asarray(stretch, dtype=np.float64) / s))
        return float((energies * errors).sum() / energies.sum())

    def bound(self, header: Levels | Header) -> float:
        """The largest level's centre, in units of the rms, lies within a step of the level."""
        return within_scales(self.traits, header, (header.top + 1) * _step(header))

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """scale D H c(level)."""
        out = np.empty(levels.dimension, dtype=np.float32)
        for here, floats in self.pieces(levels):
            out[here] = floats
        return out

    def pieces(self, levels: Levels) -> Iterator[tuple[slice, Vector]]:
        """The same for some blocks at a time, all in the same memory."""
        centres = step_means(_step(levels), levels.top)
        table = np.concatenate([-centres[:0:-1], centres])
        offsets, scales, top = levels.offsets, levels.scales.astype(np.float64), levels.top
        memory = np.empty(min(max(LARGEST_BLOCK, np.diff(offsets).max()), levels.dimension), dtype=np.float32)
        for first, last in runs(offsets, LARGEST_BLOCK):
            start, stop = int(offsets[first]), int(offsets[last])
            for here, each in levels.tiles(scales, start, stop):
                memory[here.start - start : here.stop - start] = table[levels.values[here].astype(np.intp) + top] * each
            yield slice(start, stop), rotate_back(memory[: stop - start], offsets[first : last + 1], levels.key or 0)


QUANTIZERS = (Centroid(),)


def _same_share(steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The steps with which rounding to the nearest leaves as few zeros as rounding at random does with these."""
    steps = np.minimum(steps, 1e150)
    shares = 2 * upper_tail(steps) + 2 / steps * _PEAK * (1 - exp(-steps * steps / 2))
    return np.minimum(2 * inverse_tail(shares / 2), _COARSEST)


def _step(header: Levels | Header) -> float:
    """In units of the rms, from what the receiver knows too."""
    return (1.0 if header.number is None else header.number) / header.s


def _checked_stretch(stretch: Stretch, segments: int) -> float:
    check_stretch(stretch, segments)
    if np.max(stretch) > STRETCH.most:
        raise QuantizeError(f"stretch={stretch!r}: centroid takes {STRETCH.most:g} at most.")
    return float(np.float32(np.min(stretch)))


def _each(stretch: Stretch, segments: Segments, parts: Segments) -> npt.NDArray[np.float64]:
    """The stretch of every block: its segment's, in float32 as the receiver reads it."""
    own = np.broadcast_to(np.asarray(stretch, dtype=np.float32), segments.count)
    return own[np.searchsorted(segments.offsets, parts.offsets[:-1], side="right") - 1].astype(np.float64)
