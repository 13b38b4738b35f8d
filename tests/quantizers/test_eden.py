"""EDEN and centroid: the errors that the paper prints and theory predicts, without bias, for any vector.

Statistical tests use fixed seeds and z = 5 for one statistic (false alarm 6e-7), 5.5 for a few hundred.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers.gaussian import cell_mean, lloyd_max, step_means

VECTORS = {
    "Gaussian": lambda rng, d: rng.standard_normal(d),
    "log-normal": lambda rng, d: rng.lognormal(size=d),
    "spike": lambda rng, d: rng.standard_normal(d) + 30.0 * (np.arange(d) % 1000 == 0),
}
PUBLISHED = {1: 0.570, 2: 0.133, 4: 0.0357, 8: 0.0096}  # EDEN at 1 to 4 bits


def error(x: np.ndarray, s: int, name: str, stretch: float = 1.0, key: int = 1) -> float:
    y = aq.quantize(x, s, key, None, stretch, name).dequantize().astype(np.float64)
    return float(np.sum((y - x) ** 2) / np.sum(x.astype(np.float64) ** 2))


def test_the_mean_of_a_cell_is_that_of_its_integral() -> None:
    for a, b in ((0.0, 1.0), (0.3, 0.31), (2.0, 5.0), (6.0, 6.5), (15.0, 16.0)):
        z = np.linspace(a, b, 200_001)
        weight = np.exp(-(z**2 - a**2) / 2)
        assert cell_mean(a, b) == pytest.approx(np.sum(z * weight) / np.sum(weight), rel=1e-4)
    assert cell_mean(1e3, 2e3) == 1e3


def test_fine_steps_agree_with_the_exact_means() -> None:
    exact = [cell_mean(k * 0.009 - 0.0045, k * 0.009 + 0.0045) for k in range(1, 500)]
    np.testing.assert_allclose(step_means(0.009, 499)[1:], exact, rtol=1e-7)


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_centroids_are_their_cells_means_and_edges_lie_halfway(count: int) -> None:
    centres = lloyd_max(count)
    edges = [0.0, *(centres[1:] + centres[:-1]) / 2, math.inf]
    np.testing.assert_allclose(centres, [cell_mean(edges[k], edges[k + 1]) for k in range(count)], atol=1e-9)


@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("s", PUBLISHED)
def test_edens_errors_are_the_published_ones(s: int, kind: str, rng: np.random.Generator) -> None:
    x = VECTORS[kind](rng, 2**18).astype(np.float32)
    assert error(x, s, "eden") == pytest.approx(PUBLISHED[s], rel=0.02)


@pytest.mark.parametrize(("s", "stretch"), [(4, 1.0), (1, 1.0), (1, 2.2), (1, 4.0)])
def test_centroids_error_is_that_of_its_cells(s: int, stretch: float, rng: np.random.Generator) -> None:
    # With q = E[c(z)^2] = E[z c(z)] the scaled vector errs by 1 / q - 1.
    step = stretch / s
    z = np.linspace(-12, 12, 2_000_001)
    weight = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    k = np.rint(np.abs(z) / step).astype(int)
    q = np.sum(weight * step_means(step, int(k.max()))[k] ** 2)
    x = rng.lognormal(size=2**18).astype(np.float32)
    assert error(x, s, "centroid", stretch) == pytest.approx(1 / q - 1, rel=0.03)


@pytest.mark.parametrize(
    ("name", "s", "stretch"), [("eden", 1, 1.0), ("eden", 3, 1.0), ("centroid", 1, 1.0), ("centroid", 1, 3.0)]
)
def test_both_are_unbiased(name: str, s: int, stretch: float, rng: np.random.Generator) -> None:
    # 300 = 256 + 32 + 8 + 4 elements: each block has its own scale, so that none is longer or shorter than it should.
    x, draws = (rng.standard_normal(300) * np.exp(0.5 * rng.standard_normal(300))).astype(np.float32), 4000
    seen = np.array([aq.quantize(x, s, aq.stream_key(3, k, 0), None, stretch, name).dequantize() for k in range(draws)])
    z = (seen.mean(axis=0) - x) / np.maximum(seen.std(axis=0) / np.sqrt(draws), 1e-6)
    assert np.abs(z[:256]).max() < 5.5  # small blocks are no Gaussian: next test
    along = seen[:, :256] @ x[:256] / np.sum(x[:256] ** 2)
    np.testing.assert_allclose(along, 1.0, rtol=1e-4)


@pytest.mark.parametrize(("name", "stretch"), [("eden", 1.0), ("centroid", 1.0), ("centroid", 50.0)])
def test_a_block_keeps_its_length_in_its_own_direction(name: str, stretch: float, rng: np.random.Generator) -> None:
    for d in (1, 2, 4, 8, 64, 65_536):
        x = rng.standard_t(2, d).astype(np.float32)
        y = aq.quantize(x, 1, 9, None, stretch, name).dequantize()
        assert np.dot(x, y) == pytest.approx(np.dot(x, x), rel=1e-4)


def test_centroid_beats_eden_with_fewer_bytes(rng: np.random.Generator) -> None:
    x = rng.standard_normal(2**18).astype(np.float32)
    for s, real in ((2, 0.84), (4, 1.6), (8, 3.1)):  # levels whose frames are a little smaller than EDEN's
        whole = math.ceil(real)
        ours = aq.compress(x, whole, 1, stretch=whole / real, quantizer="centroid")
        assert len(ours) < len(aq.compress(x, s, 1, quantizer="eden"))
        assert error(x, whole, "centroid", whole / real) < error(x, s, "eden")


def test_eden_has_no_level_zero(rng: np.random.Generator) -> None:
    levels = aq.quantize(rng.standard_normal(5000).astype(np.float32), 4, 1, quantizer="eden")
    assert set(np.unique(levels.values)) == {-4, -3, -2, -1, 1, 2, 3, 4}
