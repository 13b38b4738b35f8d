"""TernGrad (Wen, Xu, Yan, Wu, Wang, Chen, Li, NeurIPS 2017): levels -1, 0 and 1 of the largest magnitude.

Each element is first cut to at most 2.5 sigma, sigma the standard deviation of its segment. Then it becomes
max |g| sign(g_i) b_i, and b_i is 1 with probability |g_i| / max |g|. The rounding is unbiased, the clipping is not: the
authors accept that for the smaller maximum, and report AlexNet's accuracy unharmed. log2(3) bits per element before
entropy coding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .base import LINF, Lengths, Quantizer
from .levels import Levels
from .segments import Segments
from .uniform import QUANTIZER as UNIFORM
from .vectors import FloatVector, Stretch, float32_vector, square_sums

CLIP = 2.5  # standard deviations


class TernGrad(Quantizer):
    """Three levels of the largest element."""

    name = "terngrad"
    about = "three levels of the largest element, after clipping at 2.5 standard deviations (biased)"
    reference = "Wen et al. 2017, TernGrad"
    tags: ClassVar = {LINF: 10}
    most = 1
    follows_rule = False
    unbiased = False
    linear = True

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -1, 0 and 1 of the clipped vector's largest magnitude."""
        vector = float32_vector(x)
        cut = clipped(vector, Segments.of(segments, len(vector)))
        return replace(UNIFORM.quantize(cut, s, key, segments, stretch, norm), quantizer=self.name)


QUANTIZER = TernGrad()


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
