"""Processors with and without vectors write and read the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl import core
from adaquantfl.quantizers.registry import find, names
from support.frames import dense_body, framed

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
        levels = aq.Levels(np.clip(np.rint(size * x[:5000]), -s, s).astype(np.int32), np.float32(1.5), s)
        frame = framed(levels, 2, dense_body(levels, pairs, lanes))
        assert np.array_equal(aq.decode(frame).values, levels.values)
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
