"""The fused sum equals decoding every frame and adding up, in the order of the calls."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.frame import read_frame
from adaquantfl.codecs.inspection import describe
from adaquantfl.codecs.varints import varint
from support.frames import sealed


def test_float32_frames_are_added_in_their_turn(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 5000)).astype(np.float32)
    total = aq.Accumulator(5000)
    total.add(aq.compress(x, 7, 1), 1.0)
    total.add(aq.encode_float32(y), 2.0)
    expected = aq.quantize(x, 7, 1).dequantize() + np.float32(2) * y
    np.testing.assert_allclose(total.result(), expected, rtol=1e-5, atol=1e-6)


def test_a_buffer_may_be_used_again_after_adding(rng: np.random.Generator) -> None:
    for codec in ("fixed", "sparse", "dense"):
        frame = aq.compress(rng.standard_normal(20_000).astype(np.float32), 3, 1, codec)
        expected, total, buffer = aq.Accumulator(20_000), aq.Accumulator(20_000), bytearray(frame)
        expected.add(frame, 1.0)
        total.add(memoryview(buffer), 1.0)
        buffer[:] = bytes(len(buffer))
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
    np.testing.assert_array_equal(total.result(), before)
    assert total.frames == 1


def test_a_scale_that_leaves_float32_is_refused() -> None:
    frame = aq.compress(np.array([1e38], dtype=np.float32), 1, 0)
    with pytest.raises(aq.FrameError, match="beyond float32"):
        aq.Accumulator(1).add(frame, 10.0)


def test_no_sum_of_finite_frames_is_infinite() -> None:
    frames = [aq.compress(np.array([1e38], np.float32), 25, 0), aq.encode_float32(np.array([1e38], np.float32))]
    for frame in frames:
        total = aq.Accumulator(1)
        total.add(frame)
        with pytest.raises(aq.FrameError, match="beyond float32"):
            total.add(frame)
        assert total.result()[0] == np.float32(1e38)


def test_a_checked_frame_of_another_dimension_is_refused() -> None:
    checked = aq.Accumulator(5000).check(aq.compress(np.ones(5000, np.float32), 3, 0), 1.0)
    with pytest.raises(aq.FrameError, match="dimension 5,000, expected 2"):
        aq.Accumulator(2).add(checked)


def test_a_few_bytes_do_not_ask_for_much_memory() -> None:
    frame = bytearray(aq.compress(np.ones(70_000, np.float32) * 0, 1, 0, "sparse"))
    frame[16:24] = (2**32).to_bytes(8, "little")  # the dimension
    bad = sealed(frame)
    with pytest.raises(aq.FrameError, match=r"67,108,864 are decoded at most|chunks|body"):
        aq.decode(bad)
    with pytest.raises(aq.FrameError):
        aq.decode(bad, most=2**33)
    describe(bad)


def test_many_short_segments_are_read_at_once() -> None:
    lengths = np.array([1, 127, 128, 16_384, 1] * 100 + [2_100_000])
    x = np.zeros(1, np.float32)
    frame = aq.compress(np.broadcast_to(x, lengths.sum()).copy(), 1, 0, "sparse", segments=lengths)
    assert b"".join(varint(int(n)) for n in lengths) in bytes(frame)
    np.testing.assert_array_equal(read_frame(frame).header.segments, lengths)


def test_a_copy_of_an_accumulator_goes_its_own_way() -> None:
    total = aq.Accumulator(dimension=3)
    frame = aq.compress(np.float32([1, 2, 3]), s=255, key=0)
    total.add(frame)
    copied = pickle.loads(pickle.dumps(total))
    copied.add(frame)
    assert np.allclose(copied.result(), 2 * total.result())
