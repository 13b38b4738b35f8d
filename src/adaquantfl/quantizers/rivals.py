"""Quantizers of others: natural dithering, TernGrad, sparse ternary compression and EDEN.

Natural dithering (Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019): levels that halve.

The grid is 0, 2^(1-s), ..., 1/4, 1/2, 1 times the norm. An element goes to one of its two neighbours, at random so that
the mean is right. Level k stands for 2^(k-s) times the norm, so that a sender and a receiver only move exponents. The
authors bound the error by 1/8 ||x||^2 for what lies above the smallest level, plus
min(d^(1/2) 2^(1-s), d 2^(2-2s)) ||x||^2 for what lies below. With many levels it is their natural compression, which
rounds every float to a power of two.

TernGrad (Wen, Xu, Yan, Wu, Wang, Chen, Li, NeurIPS 2017): levels -1, 0 and 1 of the largest magnitude.

Each element is first cut to at most 2.5 sigma, sigma the standard deviation of its segment. Then it becomes
max |g| sign(g_i) b_i, and b_i is 1 with probability |g_i| / max |g|. The rounding is unbiased, the clipping is not: the
authors accept that for the smaller maximum, and report AlexNet's accuracy unharmed. log2(3) bits per element before
entropy coding.

Sparse ternary compression (Sattler, Wiedemann, Mueller, Samek, IEEE TNNLS 2019): the largest 1/s of the elements.

Those are sent as plus or minus their mean magnitude, the others as 0. Here s is the sparsity: s = 400 keeps 1 in 400,
at least one of a segment. It is biased and meant for error feedback: what was left out is added to the next update.

    update = update + remainder
    levels = aq.quantize(update, s=400, key=key, quantizer="stc")
    remainder = levels.remainder(update)

The authors report the accuracy of federated averaging at 1/400 with about a hundredth of its uplink bits.

EDEN (Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, ICML 2022) with 2 s centroids.

With y = H D x, each y_i / rms goes to the nearest of the 2 s Lloyd-Max centroids c of N(0, 1). The receiver's vector is
scale D H c with scale = ||x||^2 / <y, c>, which makes it unbiased for a uniformly random rotation. s = 1, 2, 4, 8 are
1 to 4 bits. The authors give errors ||Q(x) - x||^2 / ||x||^2 of 0.571, 0.133, 0.036 and 0.0096 there, for any x.

H D replaces the random rotation, as with the authors, and leaves a small bias. An element with a share q of its block's
squared norm comes back too large. At one bit it is too large by about q / 3 of it, with more bits by less.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from .. import core
from .base import L2, LINF, NO_NORM, Lengths, Quantizer, Traits, within_scales
from .gaussian import lloyd_max
from .levels import Levels, level_dtype
from .rotation import Turned, rotate_back
from .segments import Segments
from .streams import checked_key
from .uniform import QUANTIZER as UNIFORM
from .vectors import FloatVector, Stretch, float32_vector, inverses, scaled, square_sums

if TYPE_CHECKING:
    from ..codecs.frame import Header

CLIP = 2.5  # standard deviations, of TernGrad


class Natural(Quantizer):
    """Levels that halve."""

    name = "natural"
    tags: ClassVar = {L2: 9, LINF: 10}
    traits = Traits(
        about="levels that halve: norm, norm / 2, norm / 4, ..., rounded at random",
        reference="Horvath et al. 2019, natural dithering",
        most=127,
        balanced=True,
    )

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -s to s: k is 2^(k-s) of the norm."""
        vector, parts, scales = scaled(x, segments, stretch, norm)
        values = core.round_exponents(vector, parts.offsets, inverses(scales, 1), s, checked_key(key), level_dtype(s))
        return Levels(values, scales, s, parts.lengths, self.name, norm)

    def bound(self, header: Levels | Header) -> float:
        """The largest level is the scale."""
        return within_scales(self.traits, header, 1.0)

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """scale sign(k) 2^(|k|-s), and 0 for 0."""
        sizes = 2.0 ** np.arange(1 - levels.s, 1, dtype=np.float64)
        table = np.concatenate([-sizes[::-1], [0.0], sizes])
        each = np.repeat(levels.scales.astype(np.float64), np.diff(levels.offsets))
        return (table[levels.values.astype(np.int64) + levels.s] * each).astype(np.float32)


class TernGrad(Quantizer):
    """Three levels of the largest element."""

    name = "terngrad"
    tags: ClassVar = {LINF: 8}
    traits = Traits(
        about="three levels of the largest element, after clipping at 2.5 standard deviations (biased)",
        reference="Wen et al. 2017, TernGrad",
        most=1,
        follows_rule=False,
        unbiased=False,
        linear=True,
    )

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -1, 0 and 1 of the clipped vector's largest magnitude."""
        vector = float32_vector(x)
        cut = clipped(vector, Segments.of(segments, len(vector)))
        return replace(UNIFORM.quantize(cut, s, key, segments, stretch, norm), quantizer=self.name)


class SparseTernary(Quantizer):
    """The largest 1/s of the elements."""

    name = "stc"
    tags: ClassVar = {NO_NORM: 11}
    traits = Traits(
        about="the largest 1/s of the elements, at plus or minus their mean size (biased; with error feedback)",
        reference="Sattler, Wiedemann, Mueller, Samek 2019, STC",
        follows_rule=False,
        own_levels="sparsity",
        stretches=False,
        unbiased=False,
        feedback=True,
        linear=True,
        divides=False,
        reach=(0, 1),
    )

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
        return Levels(values, scales, s, parts.lengths, self.name, NO_NORM)


class Eden(Quantizer):
    """The nearest Lloyd-Max centroid of each rotated coordinate."""

    name = "eden"
    tags: ClassVar = {NO_NORM: 6}
    traits = Traits(
        about="rotated, then the nearest of 2 s Lloyd-Max centroids of a Gaussian",
        reference="Vargaftik et al. 2022, EDEN",
        most=16,
        stretches=False,
        keyed=True,
        rotates=True,
    )

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels 1 to s and -1 to -s, the numbers of the centroids; no level is 0."""
        turned, centres = Turned.of(x, segments, key), lloyd_max(s)
        edges = (centres[1:] + centres[:-1]) / 2
        values, dots = core.round_centres(turned.y, turned.parts.offsets, turned.inverse, edges, centres)
        return Levels(values, turned.scales(dots), s, turned.parts.lengths, self.name, NO_NORM, int(key))

    def bound(self, header: Levels | Header) -> float:
        """The largest centroid, in units of the rms."""
        return within_scales(self.traits, header, float(lloyd_max(header.s)[-1]))

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """scale D H c."""
        centres = lloyd_max(levels.s)
        table = np.concatenate([-centres[::-1], [0.0], centres])
        each = np.repeat(levels.scales.astype(np.float64), np.diff(levels.offsets))
        turned = (table[levels.values.astype(np.int64) + levels.s] * each).astype(np.float32)
        return rotate_back(turned, levels.offsets, levels.key or 0)


QUANTIZERS = (Natural(), TernGrad(), SparseTernary(), Eden())


def clipped(x: npt.NDArray[np.float32], segments: Segments) -> npt.NDArray[np.float32]:
    """Each element cut to 2.5 standard deviations of its segment; equal elements, which have none, stay.

    >>> x = np.array([1.0, -1.0] * 50 + [10.0], dtype=np.float32)
    >>> clipped(x, Segments.of(None, 101))[-1].round(3)
    np.float32(3.509)
    """
    squares = square_sums(x, segments) / segments.lengths
    means = np.add.reduceat(x.astype(np.float64), segments.offsets[:-1]) / segments.lengths
    sigma = np.sqrt(np.maximum(squares - means**2, 0.0))
    with np.errstate(over="ignore"):
        limits = np.where(sigma > 0, CLIP * sigma, np.inf).astype(np.float32)
    each = np.repeat(limits, segments.lengths)
    return np.clip(x, -each, each)


def largest(x: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int64]:
    """Where the `count` elements of the largest magnitude are; of equal ones the first.

    >>> largest(np.array([1.0, -3.0, 3.0, 3.0], dtype=np.float32), 2).tolist()
    [1, 2]
    """
    sizes = np.abs(x)
    threshold = np.partition(sizes, len(x) - count)[len(x) - count]
    above = np.flatnonzero(sizes > threshold)
    return np.concatenate([above, np.flatnonzero(sizes == threshold)[: count - len(above)]])
