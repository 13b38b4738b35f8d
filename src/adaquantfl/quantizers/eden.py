"""EDEN (Vargaftik, Ben Basat, Portnoy, Mendelson, Ben-Itzhak, Mitzenmacher, ICML 2022) with 2 s centroids.

With y = H D x, each y_i / rms goes to the nearest of the 2 s Lloyd-Max centroids c of N(0, 1). The receiver's vector is
scale D H c with scale = ||x||^2 / <y, c>, which makes it unbiased for a uniformly random rotation. s = 1, 2, 4, 8 are
1 to 4 bits. The authors give errors ||Q(x) - x||^2 / ||x||^2 of 0.571, 0.133, 0.036 and 0.0096 there, for any x.

H D replaces the random rotation, as with the authors, and leaves a small bias. An element with a share q of its block's
squared norm comes back too large. At one bit it is too large by about q / 3 of it, with more bits by less.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..jit import reduction
from ..threads import over_ranges
from .base import NO_NORM, Lengths, Quantizer
from .gaussian import lloyd_max
from .levels import Levels
from .rotation import Turned, rotate_back
from .vectors import FloatVector, Stretch


class Eden(Quantizer):
    """The nearest Lloyd-Max centroid of each rotated coordinate."""

    name = "eden"
    about = "rotated, then the nearest of 2 s Lloyd-Max centroids of a Gaussian"
    reference = "Vargaftik et al. 2022, EDEN"
    tags: ClassVar = {NO_NORM: 8}
    most = 16
    stretches = False
    keyed = True
    rotates = True

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels 1 to s and -1 to -s, the numbers of the centroids; no level is 0."""
        turned, centres = Turned.of(x, segments, key), lloyd_max(s)
        edges = (centres[1:] + centres[:-1]) / 2
        offsets, inverse = turned.parts.offsets, turned.inverse
        values, dots = np.empty(len(turned.y), dtype=np.int8), np.empty(turned.parts.count)

        def work(first: int, last: int) -> None:
            nearest_centres(turned.y, offsets, inverse, edges, centres, values, dots, first, last)

        over_ranges(work, turned.parts.count, smallest=2)
        return Levels(values, turned.scales(dots), s, turned.parts.lengths, self.name, NO_NORM, int(key))

    def growth(self, s: int, numbers: npt.NDArray[np.float32] | None = None) -> float:
        """The largest centroid, in units of the rms."""
        return float(lloyd_max(s)[-1])

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """scale D H c."""
        centres = lloyd_max(levels.s)
        table = np.concatenate([-centres[::-1], [0.0], centres])
        each = np.repeat(levels.scales.astype(np.float64), np.diff(levels.offsets))
        turned = (table[levels.values.astype(np.int64) + levels.s] * each).astype(np.float32)
        return rotate_back(turned, levels.offsets, levels.key or 0)


QUANTIZER = Eden()


@reduction
def nearest_centres(y, offsets, inverse, edges, centres, values, dots, first, last):
    """values = signed numbers of the nearest centroids; dots = <y, c> / rms, for the blocks first to last."""
    for b in range(first, last):
        source, out = y[offsets[b] : offsets[b + 1]], values[offsets[b] : offsets[b + 1]]
        total = 0.0
        for j in range(len(source)):
            size = np.float64(abs(source[j])) * inverse[b]
            k = np.int64(0)
            for e in range(len(edges)):
                k += np.int64(size > edges[e])
            total += size * centres[k]
            out[j] = np.int8(-k - 1) if source[j] < 0 else np.int8(k + 1)
        dots[b] = total
