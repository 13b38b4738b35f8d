"""The paper's stochastic uniform quantizer Q_s (eq. 4 and 5).

Q_s(w_i) = ||w||_2 sign(w_i) zeta_i. zeta_i is one of the two multiples of 1/s around |w_i| / ||w||_2, chosen at random
so that the mean is right. `Levels` holds the integers s * sign(w_i) * zeta_i and the norm. With norm "linf" the
largest magnitude takes the place of ||w||_2.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .. import core
from .base import L2, LINF, Lengths, Quantizer, Traits
from .levels import Levels, level_dtype
from .segments import Segments
from .streams import checked_key, uniforms
from .vectors import FloatVector, Stretch, scaled


def reference(x: npt.NDArray[np.float32], s: int, key: int) -> npt.NDArray[np.float64]:
    """Q_s(x) as the paper writes it, with the core's random numbers. The core is held to it by tests.

    >>> reference(np.array([3.0, -4.0], dtype=np.float32), s=5, key=0)
    array([ 3., -4.])
    """
    norm = np.sqrt(np.sum(x.astype(np.float64) ** 2))
    if norm == 0.0:
        return np.zeros(len(x))
    ratio = np.abs(x) * s / norm
    below = np.floor(ratio)
    zeta = (below + (uniforms(key, len(x)) < ratio - below)) / s
    return np.asarray(norm * np.sign(x) * zeta, dtype=np.float64)


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
        vector, cut, scales = scaled(x, segments, stretch, norm)
        values = core.round_random(vector, cut.offsets, scales, s, checked_key(key), level_dtype(s))
        return Levels(values, scales, s, cut.lengths, self.name, norm)


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
