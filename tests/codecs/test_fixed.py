"""The fixed code has the paper's size and loses nothing."""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.frame import read_frame
from support import reference_decoder
from support.frames import levels_of, sealed


@pytest.mark.parametrize(
    ("d", "s"), [(1, 65_535), (31, 2), (1024, 3), (1025, 4), (5000, 127), (100_003, 1), (2049, 255), (33, 32_768)]
)
def test_extreme_levels_come_through_in_the_papers_bits_but_for_the_last_bytes_padding(d: int, s: int) -> None:
    levels = levels_of(np.resize([s, -s, 0, 1, -1], d), s)
    frame = aq.encode(levels, "fixed")
    assert aq.decode(frame) == levels
    assert 0 <= 8 * len(read_frame(frame).body) - (aq.paper_bits(d, s) - 32) < 8


@pytest.mark.parametrize("d", [10, 3000])
def test_a_level_above_s_is_refused(d: int) -> None:
    # s = 2 is written in two bits, so a 3 fits the wire but means nothing.
    frame = bytearray(aq.encode(levels_of(np.full(d, 3), 3), "fixed"))
    frame[8] = 2  # s
    with pytest.raises(aq.FrameError, match="rule FIXED_LEVEL of"):
        aq.decode(sealed(frame))
    with pytest.raises(ValueError, match="above s"):
        reference_decoder.decode(sealed(frame))
