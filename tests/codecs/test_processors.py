"""Processors with and without vectors write and read the same bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl import core
from adaquantfl.quantizers.registry import find, names
from support.frames import dense_body, framed, levels_of

D = 70_013


@pytest.fixture(autouse=True)
def _best_vectors() -> Iterator[None]:
    yield
    core.use(-1)


def written() -> bytes:
    """Frames of every kind of body and of every quantizer, and sums of them; each frame is read again."""
    x, total = np.random.default_rng(3).standard_normal(D).astype(np.float32), aq.Accumulator(D)
    segments = [7, 30_000, 40_006]
    frames = [
        aq.compress(x, s, 1, codec, segments)
        for s in (1, 2, 100, 4095, 4096, 65535)
        for codec in ("fixed", "sparse", "dense", "auto")
    ]
    frames += [aq.compress(x, min(3, find(name).traits.most), 1, "auto", segments, quantizer=name) for name in names()]
    for s, size, pairs, lanes in ((1, 1, True, 64), (7, 2, True, 4), (127, 3, False, 16)):
        levels = levels_of(size * x[:5000], s)
        assert aq.decode(framed(levels, core.DENSE, dense_body(levels, pairs, lanes))) == levels
    for frame in frames:
        total.add(frame, 0.3)
        assert aq.encode(aq.decode(frame), "fixed")
    return b"".join(frames) + total.result().tobytes()


def test_processors_with_and_without_vectors_write_and_read_the_same_bytes() -> None:
    best = core.use(-1)
    expected = written()
    for vectors in range(best):
        assert core.use(vectors) == vectors
        assert written() == expected


@pytest.mark.parametrize("vectors", [0, 1, 2])
def test_frames_carry_the_standard_crc32(vectors: int, rng: np.random.Generator) -> None:
    core.use(vectors)
    for length in (0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 100_003):
        data = rng.bytes(length)
        assert core.crc32(data) == core.crc32(memoryview(data)) == zlib.crc32(data)
        assert core.crc32(data[5:], core.crc32(data[:5])) == zlib.crc32(data)
