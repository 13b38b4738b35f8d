"""The rotation is orthonormal and the same for both sides; levels of rotated vectors have the error of Suresh et al.

Statistical tests use fixed seeds and z = 5 for one statistic (false alarm 6e-7), 5.5 for a few hundred.
"""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers.rotation import blocks, rotate, rotate_back
from adaquantfl.quantizers.segments import Segments


def test_rotating_a_block_is_signs_and_a_hadamard_matrix(rng: np.random.Generator) -> None:
    for k in range(8):
        matrix = np.ones((1, 1))
        for _ in range(k):
            matrix = np.kron([[1, 1], [1, -1]], matrix)
        x = rng.standard_normal(2**k).astype(np.float32)
        segments = Segments.of(None, 2**k)
        units = [rotate(np.eye(2**k, dtype=np.float32)[i], segments.offsets, key=5) for i in range(2**k)]
        signs = np.sign([unit[0] for unit in units])  # the first row of a Hadamard matrix is all ones
        np.testing.assert_allclose(rotate(x, segments.offsets, key=5), matrix @ (signs * x) / 2 ** (k / 2), atol=1e-5)


@pytest.mark.parametrize("d", [1, 3, 65_536, 200_001])
def test_rotating_keeps_the_norm_and_rotating_back_undoes_it(d: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal(d).astype(np.float32)
    parts = blocks(Segments.of(None, d))
    turned = rotate(x, parts.offsets, key=3)
    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(x), rel=1e-5)
    np.testing.assert_allclose(rotate_back(turned, parts.offsets, key=3), x, atol=1e-5)
    assert parts.lengths.max() <= 65_536
    assert parts.dimension == d


def test_signs_are_fair_and_independent_of_the_rounding() -> None:
    # A unit vector in each block of 1: its rotation is its sign. 40,000 coins, their neighbours, and the draws.
    d, ones = 40_000, np.ones(40_000, dtype=np.float32)
    signs = rotate(ones, Segments.of([1] * d, d).offsets, key=aq.stream_key(0, 0, 0)).astype(np.float64)
    assert set(signs) == {-1.0, 1.0}
    flips = aq.quantize(ones, int(np.sqrt(d) / 2), aq.stream_key(0, 0, 0)).values - 0.5
    for other in (np.ones(d), np.roll(signs, 1), np.roll(signs, 2), 2 * flips):
        assert abs(np.mean(signs * other)) * np.sqrt(d) < 5


def test_rotated_levels_are_unbiased(rng: np.random.Generator) -> None:
    x, draws = (rng.standard_normal(300) * np.exp(rng.standard_normal(300))).astype(np.float32), 3000
    levels = aq.quantize(np.tile(x, draws), 2, 1, [300] * draws, quantizer="rotated")
    seen = levels.dequantize().reshape(draws, 300).astype(np.float64)
    z = (seen.mean(axis=0) - x) / (seen.std(axis=0) / np.sqrt(draws))
    assert np.abs(z).max() < 5.5


def test_rotation_brings_the_error_of_a_spike_down_to_that_of_suresh_et_al(rng: np.random.Generator) -> None:
    # Theirs is at most (2 log d + 2) / (n (k - 1)^2) of the norm squared with k levels from the least to the largest;
    # ours reach from -max to max in steps of max / s, k - 1 = 2 s.
    d, s = 4096, 2
    x = rng.standard_normal(d).astype(np.float32)
    x[7] = 500.0
    errors = {
        name: np.mean(
            [np.sum((aq.quantize(x, s, k, quantizer=name, norm="linf").dequantize() - x) ** 2) for k in range(200)]
        )
        for name in ("uniform", "rotated")
    }
    bound = (2 * np.log(d) + 2) / (2 * s) ** 2 * np.sum(x.astype(np.float64) ** 2)
    assert errors["rotated"] < bound
    assert errors["rotated"] < errors["uniform"] / 3
