"""Levels in the reference decoder's form, to hold the two decoders against each other."""

from __future__ import annotations

import adaquantfl as aq
from adaquantfl.quantizers import find
from adaquantfl.quantizers.factors import Axis
from support.reference_decoder import Decoded


def as_read(levels: aq.Levels) -> Decoded:
    """What the reference decoder makes of a frame with these levels."""
    segments = None if levels.segments is None else levels.segments.tolist()
    tag = find(levels.quantizer).tags[levels.norm]
    numbers = () if levels.numbers is None else tuple(levels.numbers.tolist())
    plain = (levels.s, levels.dimension, segments, levels.scales.tolist(), levels.values.tolist())
    factors = tuple((one.start, exponents(one.rows), exponents(one.columns)) for one in levels.factors)
    return Decoded(*plain, tag, numbers, levels.key, factors)


def exponents(axis: Axis) -> list[int]:
    return [axis.exponents[i // axis.group] if axis.group else 0 for i in range(axis.size)]
