"""Levels in the reference decoder's form, to hold the two decoders against each other."""

from __future__ import annotations

import adaquantfl as aq
from adaquantfl.quantizers import find
from support.reference_decoder import Decoded


def as_read(levels: aq.Levels) -> Decoded:
    """What the reference decoder makes of a frame with these levels."""
    segments = None if levels.segments is None else levels.segments.tolist()
    tag = find(levels.quantizer).tags[levels.norm]
    numbers = () if levels.number is None else (levels.number,)
    plain = (levels.s, levels.dimension, segments, levels.scales.tolist(), levels.values.tolist())
    return Decoded(*plain, tag, numbers, levels.key)
