"""Encoders and accumulators use their memory again: from the second round on nothing large is allocated."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import adaquantfl as aq

D = 1_000_000
SMALL = D // 2 + 100_000  # bytes: an eighth of the vector, which is 8 tiles, and tables
# codec, s: all bodies; of dense pairs and levels
CASES = [("fixed", 3), ("sparse", 3), ("dense", 15), ("dense", 4_000)]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Two threads hold scratch at once or in turn, so that what is allocated depends on timing."""
    aq.set_threads(1)


def update(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(D, dtype=np.float32)


def most_allocated(work: Callable[[], object]) -> int:
    """The largest sum of what is allocated at one time, beyond what there was before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("codec", "s"), [*CASES, ("auto", 15)])
def test_an_encoder_allocates_nothing_large_after_its_first_frames(codec: str, s: int) -> None:
    vectors = [update(seed) for seed in range(4)]
    encoder = aq.Encoder(codec)
    for key, x in enumerate(vectors[:3]):
        encoder.compress(x, s, key)
    assert most_allocated(lambda: encoder.compress(vectors[3], s, 3)) < SMALL


@pytest.mark.parametrize(("codec", "s"), CASES)
def test_an_accumulator_allocates_nothing_large_after_its_first_round(codec: str, s: int) -> None:
    frames = [aq.compress(update(seed), s, seed, codec) for seed in range(6)]
    total, out = aq.Accumulator(D), np.empty(D, dtype=np.float32)

    def play() -> None:
        total.reset()
        for frame in frames:
            total.add(frame, 1 / 6)
        total.result(out)

    play()
    first = out.copy()
    # The least of three: memory of other threads of the process counts too.
    assert min(most_allocated(play) for _ in range(3)) < SMALL
    assert np.array_equal(out, first)


@pytest.mark.parametrize(("codec", "s"), [*CASES, ("auto", 1), ("auto", 2000)])
def test_an_encoder_writes_the_bytes_of_compress(codec: str, s: int) -> None:
    encoder = aq.Encoder(codec)
    for seed in range(3):
        x = update(seed)
        frame = encoder.compress(x, s, seed)
        assert frame.readonly
        assert frame == aq.compress(x, s, seed, codec)


def test_an_encoder_takes_other_quantizers_norms_and_segments() -> None:
    x = update(0)[:5000]
    assert aq.Encoder("dense", "lattice", "linf").compress(x, 3, 1, [2000, 3000], 2.0) == aq.compress(
        x, 3, 1, "dense", [2000, 3000], 2.0, "lattice", "linf"
    )


def test_a_checked_frame_is_kept_as_its_bytes() -> None:
    frames = [aq.compress(update(seed), 2000, seed, "dense") for seed in range(2)]
    total, plain = aq.Accumulator(D), aq.Accumulator(D)
    total.check(frames[0], 1.0)
    aq.set_threads(1)
    assert most_allocated(lambda: total.check(frames[0], 1.0)) < 3 * D  # what it was decoded to, and not for long
    checked = total.check(frames[0], 1.0)
    total.add(frames[1])
    total.add(checked)
    for place in (1, 0):
        plain.add(frames[place])
    assert np.array_equal(total.result(), plain.result())


def test_a_refused_frame_leaves_the_sum_as_it_was() -> None:
    total = aq.Accumulator(D)
    total.add(aq.compress(update(1), 3, 1))
    before = total.result()
    with pytest.raises(aq.FrameError, match="beyond float32"):
        total.add(aq.compress(update(0), 60_000, 1, "dense"), 1e38)
    assert np.array_equal(total.result(), before)
    assert total.frames == 1
