"""Plain rounding: level = s x / max |x| to the nearest whole number, ties to the even one. Nothing is random.

No error is above half a step. In fine steps the mean square is step^2 / 12, half of that of rounding at random. There
are no random numbers to draw. But it is biased: the errors do not average out over clients, and what is below half a
step would be lost in every round. Clients keep what they left out and add it to their next update (error feedback). The
norm is the largest magnitude. So something is always sent, as long as a step is less than twice that. With the l2 norm,
half a step could be more than any element of a long vector.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from ..jit import kernel
from ..threads import over_ranges
from .base import LINF, Lengths, Quantizer
from .levels import Levels, level_dtype
from .streams import split_key
from .uniform import Prepared
from .vectors import FloatVector, Stretch


class Nearest(Quantizer):
    """Rounding to the nearest level."""

    name = "nearest"
    about = "uniform's steps, rounded to the nearest: no random numbers (biased; with error feedback)"
    reference = "plain rounding, what int8 casts and group-wise quantizers do"
    tags: ClassVar = {LINF: 14}
    unbiased = False
    feedback = True
    linear = True

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels -s to s of the norm; the key is checked and not used."""
        split_key(key)
        ready = Prepared.of(x, s, segments, stretch, norm)
        bounds, owner = ready.segments.pieces
        inverse, values = ready.inverse.astype(np.float32), np.empty(len(ready.x), dtype=level_dtype(s))

        def work(first: int, last: int) -> None:
            round_pieces(ready.x, bounds, owner, inverse, np.float32(s), values, first, last)

        over_ranges(work, len(owner), smallest=4)
        levels = ready.as_levels(values, s, None if segments is None else ready.segments.lengths)
        return replace(levels, quantizer=self.name)


QUANTIZER = Nearest()


@kernel
def round_pieces(x, bounds, owner, inverse, top, values, first, last):
    """values = the levels of the pieces first to last."""
    for piece in range(first, last):
        inv = inverse[owner[piece]]
        source, out = x[bounds[piece] : bounds[piece + 1]], values[bounds[piece] : bounds[piece + 1]]
        for j in range(len(source)):
            t = min(max(np.float32(source[j] * inv), -top), top)
            out[j] = np.int32(np.rint(t))
