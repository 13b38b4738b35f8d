"""A model's difference brings it back bit for bit, whatever the bits are."""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.difference import apply_difference, encode_difference


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
