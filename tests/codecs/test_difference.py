"""A model's difference brings it back bit for bit, whatever the bits are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs.difference import apply_difference, encode_difference

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, 1.0], dtype=np.float32)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5000), st.floats(0, 1))
def test_any_two_vectors(seed: int, size: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    old, new = (rng.integers(0, 2**32, size, dtype=np.uint32).view(np.float32) for _ in range(2))
    new = np.where(rng.random(size) < share, new, old)
    back = apply_difference(old, encode_difference(old, new))
    np.testing.assert_array_equal(back.view(np.uint32), new.view(np.uint32))


def test_special_values() -> None:
    old, new = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
    back = apply_difference(old, encode_difference(old, new))
    np.testing.assert_array_equal(back.view(np.uint32), new.view(np.uint32))


def test_a_small_step_takes_fewer_bytes_than_the_vector() -> None:
    rng = np.random.default_rng(0)
    old = rng.normal(0, 0.02, 100_000).astype(np.float32)
    dense = old + rng.normal(0, 1e-4, 100_000).astype(np.float32)
    sparse = np.where(rng.random(100_000) < 0.01, dense, old)
    assert len(encode_difference(old, dense)) < 0.8 * old.nbytes
    assert len(encode_difference(old, sparse)) < 0.02 * old.nbytes


@pytest.mark.parametrize("cut", [0, 3, 8, 40, -1])
def test_a_truncated_difference_is_refused(cut: int) -> None:
    old = np.arange(100, dtype=np.float32)
    with pytest.raises(aq.FrameError):
        apply_difference(old, encode_difference(old, old[::-1].copy())[:cut])


def test_a_difference_for_another_vector_is_refused_or_gives_other_values() -> None:
    old, new = np.full(10, 1.0, dtype=np.float32), np.full(10, np.finfo(np.float32).max, dtype=np.float32)
    difference = encode_difference(old, new)
    with pytest.raises(aq.FrameError, match=r"beyond float32|dimension"):
        apply_difference(np.full(10, np.nan, dtype=np.float32), difference)
    with pytest.raises(aq.FrameError, match="dimension"):
        apply_difference(old[:9], difference)
