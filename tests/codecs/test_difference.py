"""A model's difference brings it back bit for bit, whatever the bits are, and no bytes can upset its reader."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs.difference import apply_difference, encode_difference

PATTERNS = st.lists(st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1]) | st.integers(0, 2**32 - 1))


@given(st.data(), PATTERNS.filter(bool))
def test_any_patterns_come_back_bit_for_bit(data: st.DataObject, bits: list[int]) -> None:
    other = data.draw(st.permutations(bits))
    old, new = (np.array(each, dtype=np.uint32).view(np.float32) for each in (bits, other))
    assert apply_difference(old, encode_difference(old, new)).tobytes() == new.tobytes()


def test_a_small_step_takes_fewer_bytes_than_the_vector() -> None:
    rng = np.random.default_rng(0)
    old = rng.normal(0, 0.02, 100_000).astype(np.float32)
    dense = old + rng.normal(0, 1e-4, 100_000).astype(np.float32)
    sparse = np.where(rng.random(100_000) < 0.01, dense, old)
    assert len(encode_difference(old, dense)) < 0.8 * old.nbytes
    assert len(encode_difference(old, sparse)) < 0.02 * old.nbytes


def test_a_difference_has_its_golden_bytes() -> None:
    old, new = np.float32([1.0, -2.0, 0.0, 5.0]), np.float32([1.5, -2.0, -0.0, -1.0])
    signs = aq.encode(aq.Levels(np.array([1, 0, -1, -1], np.int8), np.float32(1), 1))
    planes = [zlib.compress(bytes(plane), 1) for plane in ([0, 1, 1], [0, 0, 0], [64, 0, 32], [0, 0, 128])]
    assert encode_difference(old, new) == b"".join(struct.pack("<Q", len(part)) + part for part in (signs, *planes))


@pytest.mark.parametrize("cut", [0, 3, 8, 40, -1])
def test_a_truncated_difference_is_refused(cut: int) -> None:
    old = np.arange(100, dtype=np.float32)
    with pytest.raises(aq.FrameError):
        apply_difference(old, encode_difference(old, old[::-1].copy())[:cut])


def test_a_difference_for_another_vector_is_refused_or_gives_other_values() -> None:
    old, new = np.full(10, 1.0, dtype=np.float32), np.full(10, np.finfo(np.float32).max, dtype=np.float32)
    difference = encode_difference(old, new)
    with pytest.raises(aq.FrameError, match="beyond float32"):
        apply_difference(np.full(10, np.nan, dtype=np.float32), difference)
    with pytest.raises(aq.FrameError, match="dimension"):
        apply_difference(old[:9], difference)
