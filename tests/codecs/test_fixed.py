"""The fixed code has the paper's size and loses nothing."""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.frame import read_frame
from support import reference_decoder
from support.frames import sealed

LEVELS = [1, 2, 3, 4, 7, 8, 100, 127, 128, 255, 1000, 32767, 32768, 40000, 65535]


@pytest.mark.parametrize("s", [1, 2, 3, 4, 255, 32768, 65535])
@pytest.mark.parametrize("d", [1, 31, 1024, 100_003])
def test_the_body_is_the_papers_bits_but_for_the_last_bytes_padding(d: int, s: int) -> None:
    body = read_frame(aq.encode(aq.quantize(np.ones(d, dtype=np.float32), s, 0), "fixed")).body
    padding = 8 * len(body) - (aq.paper_bits(d, s) - 32)
    assert 0 <= padding < 8


@pytest.mark.parametrize("s", LEVELS)
def test_extreme_levels_come_through(s: int) -> None:
    values = np.tile(np.array([s, -s, 0, 1, -1]), 1000).astype(aq.quantize(np.ones(1), s, 0).values.dtype)
    levels = aq.Levels(values, np.float32(1.5), s)
    assert aq.decode(aq.encode(levels, "fixed")) == levels


def test_the_bytes_do_not_depend_on_the_number_of_threads(rng: np.random.Generator) -> None:
    x = rng.standard_normal(500_000).astype(np.float32)
    frames = set()
    for threads in (1, 2, 5):
        aq.set_threads(threads)
        frames |= {aq.compress(x, 3, 1, "fixed"), aq.encode(aq.quantize(x, 3, 1), "fixed")}
    assert len(frames) == 1


def test_a_level_above_s_is_refused() -> None:
    # s = 2 is written in two bits, so a 3 fits the wire but means nothing.
    for d in (10, 3000):
        values = np.full(d, 3, dtype=np.int8)
        frame = bytearray(aq.encode(aq.Levels(values, np.float32(1), 3), "fixed"))
        frame[8] = 2  # s
        with pytest.raises(aq.FrameError, match="level of 3"):
            aq.decode(sealed(frame))
        with pytest.raises(ValueError, match="above s"):
            reference_decoder.decode(sealed(frame))
