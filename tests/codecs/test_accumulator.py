"""The fused sum equals decoding every frame and adding up, in the order of the calls."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.accumulator import check_frame
from adaquantfl.codecs.inspection import describe
from support.frames import levels_of, sealed, some_vector

D = 1_000_000
SMALL = D // 2 + 100_000  # bytes: an eighth of the vector, which is 8 tiles, and tables
# codec, s: all bodies; of dense pairs and levels
CASES = [("fixed", 3), ("sparse", 3), ("dense", 15), ("dense", 4_000)]


@pytest.mark.parametrize(("codec", "s"), [("fixed", 7), ("sparse", 6), ("dense", 1), ("dense", 65_535)])
def test_sums_are_those_of_the_levels(codec: str, s: int) -> None:
    lengths, scales = [10, 200_000, 1, 131_072, 1223], np.float32([0.5, 2, 0.125, 1, 3])
    values = levels_of(some_vector("heavy", sum(lengths)) * s / 4, s).values
    total = aq.Accumulator(sum(lengths))
    total.add(aq.encode(aq.Levels(values, scales, s, np.array(lengths)), codec), -0.75)
    steps = (-0.75 * scales.astype(np.float64) / s).astype(np.float32)
    assert np.array_equal(total.result(), np.repeat(steps, lengths) * values.astype(np.float32))


def test_float32_frames_are_added_in_their_turn(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 5000)).astype(np.float32)
    total = aq.Accumulator(5000)
    total.add(aq.compress(x, 7, 1), 1.0)
    total.add(aq.encode_float32(y), 2.0)
    expected = aq.quantize(x, 7, 1).dequantize() + np.float32(2) * y
    np.testing.assert_allclose(total.result(), expected, rtol=1e-5, atol=1e-6)


def test_a_buffer_may_be_used_again_after_adding(rng: np.random.Generator) -> None:
    frame = aq.compress(rng.standard_normal(20_000).astype(np.float32), 3, 1)
    expected, total, buffer = aq.Accumulator(20_000), aq.Accumulator(20_000), bytearray(frame)
    checked = check_frame(memoryview(buffer), 1.0, 20_000)
    total.add(memoryview(buffer), 1.0)
    buffer[:] = bytes(len(buffer))
    total.add(checked)
    expected.add(frame, 1.0)
    expected.add(frame, 1.0)
    assert total.result().tobytes() == expected.result().tobytes()


def test_a_refused_frame_leaves_the_sum_as_it_was(rng: np.random.Generator) -> None:
    frame = aq.compress(rng.standard_normal(3000).astype(np.float32), 2, 1)
    total = aq.Accumulator(3000)
    total.add(frame, 1.0)
    before = total.result()
    for bad in (frame[:-1], b"", aq.compress(np.ones(2999, dtype=np.float32), 2, 1)):
        with pytest.raises(aq.FrameError):
            total.add(bad, 1.0)
    for weight in (float("nan"), None):
        with pytest.raises(aq.FrameError, match="weight"):
            total.add(frame, weight)
    with pytest.raises(aq.FrameError, match="beyond float32"):
        total.add(aq.compress(rng.standard_normal(3000), 60_000, 1, "dense"), 1e38)
    with pytest.raises(aq.FrameError, match="dimension 5,000, expected 3,000"):
        total.add(check_frame(aq.compress(np.ones(5000, np.float32), 3, 0), 1.0, 5000))
    np.testing.assert_array_equal(total.result(), before)
    assert total.frames == 1


def test_no_sum_of_finite_frames_is_infinite() -> None:
    frames = [aq.compress(np.array([1e38], np.float32), 25, 0), aq.encode_float32(np.array([1e38], np.float32))]
    for frame in frames:
        total = aq.Accumulator(1)
        total.add(frame)
        with pytest.raises(aq.FrameError, match="beyond float32"):
            total.add(frame)
        assert total.result()[0] == np.float32(1e38)


def test_a_few_bytes_do_not_ask_for_much_memory() -> None:
    frame = bytearray(aq.compress(np.zeros(70_000, np.float32), 1, 0, "sparse"))
    frame[16:24] = (2**32).to_bytes(8, "little")  # the dimension
    bad = sealed(frame)
    with pytest.raises(aq.FrameError, match="67,108,864 are decoded at most"):
        aq.decode(bad)
    with pytest.raises(aq.FrameError):
        aq.decode(bad, most=2**33)
    describe(bad)


def test_a_copy_of_an_accumulator_goes_its_own_way() -> None:
    total, frame = aq.Accumulator(dimension=3), aq.compress(np.float32([1, 2, 3]), s=255, key=0)
    total.add(frame)
    copied = pickle.loads(pickle.dumps(total))
    copied.add(frame)
    assert np.allclose(copied.result(), 2 * total.result())


# Memory is used again: from the second round on nothing large is allocated.


def update(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(D, dtype=np.float32)


def most_allocated(work: Callable[[], object]) -> int:
    """The largest sum of what is allocated at one time, beyond what there was before."""
    aq.set_threads(1)  # two threads hold scratch at once or in turn
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("codec", "s"), CASES)
def test_an_accumulator_allocates_nothing_large_after_its_first_frame(codec: str, s: int) -> None:
    frames, total = [aq.compress(update(seed), s, seed, codec) for seed in range(2)], aq.Accumulator(D)
    total.add(frames[0])
    # The least of three: memory of other threads of the process counts too.
    assert min(most_allocated(lambda: total.add(frames[1])) for _ in range(3)) < SMALL


def test_a_checked_frame_is_kept_as_its_bytes() -> None:
    frame = aq.compress(update(0), 2000, 0, "dense")
    check_frame(frame, 1.0, D)
    assert most_allocated(lambda: check_frame(frame, 1.0, D)) < 3 * D  # what it was decoded to, and not for long
