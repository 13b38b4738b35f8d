"""Whatever is wrong with a frame, the answer is FrameError with its reason."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from support import reference_decoder
from support.frames import sealed


@pytest.fixture
def frame(rng: np.random.Generator) -> bytes:
    return aq.compress(rng.standard_normal(200).astype(np.float32), s=3, key=1, codec="fixed", segments=[50, 150])


def test_every_truncation_and_every_flipped_bit_is_refused(frame: bytes) -> None:
    altered = [frame[:length] for length in range(len(frame))]
    for bit in range(8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        altered.append(bytes(flipped))
    for one in altered:
        with pytest.raises(aq.FrameError):
            aq.decode(one)


def change(offset: int, layout: str, value: float) -> Callable[[bytearray], None]:
    return lambda frame: struct.pack_into(layout, frame, offset, value)


LIES = {
    "magic": (change(0, "<B", 65 + 1), "Not a frame"),
    "version": (change(4, "<B", 2), "version 2"),
    "quantizer": (change(5, "<B", 99), "Quantizer tag 99"),
    "codec": (change(6, "<B", 99), "Codec tag 99"),
    "layout": (change(7, "<B", 9), "rule LAYOUT"),
    "s is 0": (change(8, "<I", 0), "rule LEVELS"),
    "s too large": (change(8, "<I", 70000), "rule LEVELS"),
    "s larger than written": (change(8, "<I", 200), "rule FIXED_SIZE"),
    "no scales": (change(12, "<I", 0), "rule NO_SCALES"),
    "a billion scales": (change(12, "<I", 10**9), "rule MANY_SCALES"),
    "dimension": (change(16, "<Q", 199), "rule LENGTHS"),
    "dimension 0": (change(16, "<Q", 0), "rule TOO_LARGE"),
    "dimension 2^60": (change(16, "<Q", 2**60), "rule TOO_LARGE"),
    "body length": (change(24, "<Q", 10), "asks for"),
    "absurd body length": (change(24, "<Q", 2**63), "Truncated"),
    "NaN scale": (change(35, "<f", np.nan), "NaN"),
    "negative scale": (change(35, "<f", -1.0), "negative"),
    "infinite scale": (change(39, "<f", np.inf), "infinite"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_in_the_header_is_refused_even_with_a_right_checksum(frame: bytes, lie: str) -> None:
    alter, word = LIES[lie]
    altered = bytearray(frame)
    alter(altered)
    with pytest.raises(aq.FrameError, match=word):
        aq.decode(sealed(altered))
    with pytest.raises(ValueError, match=r"\w"):
        reference_decoder.decode(sealed(altered))


def test_trailing_bytes_and_another_dimension_are_refused(frame: bytes) -> None:
    with pytest.raises(aq.FrameError):
        aq.decode(frame + b"\0")
    with pytest.raises(aq.FrameError, match="exactly one frame"):
        aq.decode(sealed(frame + b"\0\0\0\0"))
    with pytest.raises(aq.FrameError, match="dimension 200, expected 201"):
        aq.decode(frame, dimension=201)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(aq.FrameError):
        aq.decode(data)
    head = struct.pack("<4sB", b"AQFL", 1)
    with pytest.raises(aq.FrameError):
        aq.decode(sealed(head + data + b"\0\0\0\0"))


def test_any_bytes_like_object_is_read_at_any_alignment(frame: bytes) -> None:
    levels = aq.decode(frame)
    assert aq.decode(bytearray(frame)) == levels
    for shift in range(8):
        assert aq.decode(memoryview(bytes(shift) + frame)[shift:]) == levels


def test_levels_in_any_array_are_encoded(frame: bytes) -> None:
    levels = aq.decode(frame)
    for values in (levels.values.astype(">i4"), np.repeat(levels.values, 2)[::2], levels.values.astype(np.int64)):
        assert aq.encode(aq.Levels(values, levels.scale, levels.s, levels.segments), "fixed") == frame


def test_what_is_not_bytes_is_refused() -> None:
    for wrong in ("text", 3, None, memoryview(bytes(100))[::2]):
        with pytest.raises(aq.FrameError, match="contiguous bytes"):
            aq.decode(wrong)


def test_an_unknown_codec_is_refused_with_the_nearest_name(frame: bytes) -> None:
    with pytest.raises(aq.FrameError, match="Did you mean 'fixed'"):
        aq.encode(aq.decode(frame), codec="fixd")


def test_float32_frames_carry_values_and_refuse_what_is_not_finite(rng: np.random.Generator) -> None:
    x = rng.standard_normal(33).astype(np.float32)
    frame = aq.encode_float32(x)
    np.testing.assert_array_equal(aq.decode_float32(frame, dimension=33), x)
    with pytest.raises(aq.FrameError, match="decode_float32"):
        aq.decode(frame)
    with pytest.raises(aq.FrameError, match=r"aq\.decode"):
        aq.decode_float32(aq.compress(x, 3, 1))
    with pytest.raises(aq.FrameError, match="finite"):
        aq.encode_float32(np.array([np.nan], dtype=np.float32))
    poisoned = bytearray(frame)
    struct.pack_into("<f", poisoned, len(frame) - 8, np.inf)
    with pytest.raises(aq.FrameError, match="infinite"):
        aq.decode_float32(sealed(poisoned))
