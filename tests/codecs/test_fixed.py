"""The fixed code has the paper's size and loses nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs.fixed import body_size
from adaquantfl.codecs.frame import read_frame
from support.frames import sealed
from support.processors import WITHOUT, skip_if_impossible
from support.widths import EVERY_WIDTH

LEVELS = [1, 2, 3, 4, 7, 8, 100, 127, 128, 255, 1000, 32767, 32768, 40000, 65535]


@pytest.mark.parametrize("s", LEVELS)
@pytest.mark.parametrize("d", [1, 2, 31, 32, 1000, 1023, 1024, 1025, 4096, 100_003])
def test_the_body_is_the_papers_bits_but_for_the_last_bytes_padding(d: int, s: int) -> None:
    body = read_frame(aq.encode(aq.quantize(np.ones(d, dtype=np.float32), s, 0), "fixed")).body
    padding = 8 * len(body) - (aq.paper_bits(d, s) - 32)
    assert len(body) == body_size(d, s)
    assert 0 <= padding < 8


@given(data=st.data(), d=st.integers(1, 5000), seed=st.integers(0, 1000), pieces=st.integers(1, 5))
def test_decode_undoes_encode(data: st.DataObject, d: int, seed: int, pieces: int) -> None:
    s = data.draw(st.sampled_from(EVERY_WIDTH))
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(d) * np.exp(3 * rng.standard_normal(d))).astype(np.float32)
    cuts = np.unique(np.append(rng.integers(1, d + 1, pieces), d))
    segments = None if pieces == 1 else np.diff(np.append(0, cuts))
    levels = aq.quantize(x, s, seed, segments)
    frame = aq.encode(levels, "fixed")
    assert aq.decode(frame, dimension=d) == levels
    assert aq.decode(frame).values.dtype == levels.values.dtype
    assert aq.compress(x, s, seed, "fixed", segments) == frame


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


@pytest.mark.parametrize("without", WITHOUT)
def test_processors_with_and_without_vectors_write_the_same_bytes_and_sums(without: str, tmp_path: Path) -> None:
    skip_if_impossible(without)
    code = (
        "import hashlib, numpy as np, adaquantfl as aq\n"
        "x, total = np.random.default_rng(3).standard_normal(70_013).astype('f4'), aq.Accumulator(70_013)\n"
        "frames = [aq.compress(x, s, 1, 'fixed', [7, 30_000, 40_006]) for s in (1, 2, 100, 4095, 4096, 65535)]\n"
        "[total.add(frame, 0.3) for frame in frames]\n"
        "print(hashlib.sha256(b''.join(frames) + total.result().tobytes()).hexdigest())"
    )
    digests = set()
    for settings in ({}, WITHOUT[without]):
        environment = os.environ | settings | {"NUMBA_CACHE_DIR": str(tmp_path / str(len(settings)))}
        digests.add(subprocess.check_output([sys.executable, "-c", code], env=environment))
    assert len(digests) == 1


def test_a_level_above_s_is_refused() -> None:
    # s = 2 is written in two bits, so a 3 fits the wire but means nothing.
    for d in (10, 3000):
        values = np.full(d, 3, dtype=np.int8)
        frame = bytearray(aq.encode(aq.Levels(values, np.float32(1), 3), "fixed"))
        frame[8] = 2  # s
        with pytest.raises(aq.FrameError, match="level of 3"):
            aq.decode(sealed(frame))
