"""Ours: each block of an update in the form that errs least there at equal bytes.

The sender cuts segments into blocks of 2^k elements, and quantizes all of them with dither at the step that was asked
for. It counts what the levels of each block cost by their entropy. A block has one of three forms:

- dithered (`dithered.py`): its error is known exactly, and it is unbiased for every vector.
- lattice (`lattice.py`): 0.17 dB less error at the same bytes, where levels are many.
- rotated (`centroid.py`): at the step whose Gaussian levels have the same entropy; its error is a function of it.

A block whose energy lies in few elements does not become Gaussian when it is rotated. Its rotated levels cost more than
its own, and they are biased. Element x of a vector of norm 1 comes back as x + b x^3 (`gaussian.step_bias`). So a block
is rotated only if 64 elements or more share its energy. The square of that bias must be at most 1 % of its error too.

Segments of few elements are quantized as finely as a thirty-second of the frame allows: they cost next to nothing.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .base import L2, MOST_BLOCK, NO_NORM, Lengths, Number, Quantizer, are_blocks
from .centroid import CLIP
from .forms import DITHERED, GAIN_UNIT, LATTICE, MOST_GAIN, WIDTHS, as_sent, from_forms, to_rotated, width
from .levels import Levels, level_dtype
from .rotation import LARGEST_BLOCK
from .segments import Segments
from .trial import FINEST, LEAST_BLOCK, Trial, units_of
from .vectors import FloatVector, Stretch, scaled


class Mixed(Quantizer):
    """For each block the form with the least error at equal bytes."""

    name = "mixed"
    about = "ours: dithered, on a lattice or rotated, whichever errs least at equal bytes in each block"
    reference = "this software; dithered, lattice and centroid, chosen by their exact errors"
    tags: ClassVar = {NO_NORM: 16}
    keyed = True
    number = Number("form", per_segment=True, least=-WIDTHS[-1], most=LATTICE, wire="<i2")
    rotates = True  # some of its segments
    takes_balanced = True
    levels_by_update = True
    divides = False

    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Levels that cost as much as s levels of `dithered`. The frame's s is the largest of them."""
        vector, asked, scales = scaled(x, segments, stretch, L2)
        wanted = as_sent(scales.astype(np.float64) / min(s, FINEST))
        trial = Trial.of(vector, asked, wanted, key).with_forms(vector, key)
        starts = trial.segment_starts()
        parts = Segments(np.append(trial.units.offsets[starts], len(vector)))
        forms, steps, values = trial.forms[starts], trial.steps[starts], trial.values
        to_rotated(vector, parts, key, forms, values, steps)
        gains = np.rint(6 * GAIN_UNIT * np.add.reduceat(trial.spread, starts) / parts.lengths)
        forms = np.where(forms == DITHERED, gains, forms)
        top = max(int(np.abs(values).max()), 1)
        sent, numbers = steps.astype(np.float32), forms.astype(np.float32)
        return Levels(values.astype(level_dtype(top)), sent, top, parts.lengths, self.name, NO_NORM, int(key), numbers)

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """Each segment as its form says."""
        assert levels.numbers is not None
        return from_forms(levels.values, Segments(levels.offsets), levels.key or 0, levels.scales, levels.numbers)

    def bound(
        self,
        s: int,
        scales: npt.NDArray[np.float32],
        numbers: npt.NDArray[np.float32] | None,
        segments: npt.NDArray[np.int64] | None,
        dimension: int,
    ) -> float:
        """A rotated coordinate is cut off at 16 rms and put back within a step of that; others are levels of a step."""
        assert numbers is not None
        lengths = np.array([dimension]) if segments is None else segments
        rotated = (CLIP + 2 * width(-np.minimum(numbers, -1))) * np.sqrt(lengths)
        return float((scales.astype(np.float64) * np.where(numbers < 0, rotated, s + 2.0)).max())

    def refusal(self, lengths: npt.NDArray[np.int64], numbers: npt.NDArray[np.float32] | None) -> str:
        """Forms are whole numbers that mean something; only rotated segments are blocks."""
        assert numbers is not None
        if ((numbers > MOST_GAIN) & (numbers < LATTICE)).any() or (numbers != np.rint(numbers)).any():
            return f"A form of mixed is a whole number up to {MOST_GAIN}, or {LATTICE}; this frame has another one."
        if not are_blocks(lengths[numbers < 0]) or (lengths[numbers < 0] < LEAST_BLOCK).any():
            return f"A rotated segment has 2^k elements, {LEAST_BLOCK} to {MOST_BLOCK:,}; this frame has another one."
        return ""

    def can_send(
        self, found: npt.NDArray[np.int64] | None, asked: npt.NDArray[np.int64] | None, dimension: int
    ) -> bool:
        """A sender decides by its update which blocks it joins: cuts are those of segments, or of their blocks."""
        wanted, cut = Segments.of(asked, dimension), Segments.of(found, dimension).offsets
        return bool(np.isin(wanted.offsets, cut).all() and np.isin(cut, units_of(wanted, LARGEST_BLOCK).offsets).all())


QUANTIZER = Mixed()
