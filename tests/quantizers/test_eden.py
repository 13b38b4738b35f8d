"""EDEN and centroid: the errors that the paper prints and theory predicts, without bias, for any vector.

Statistical tests use fixed seeds and z = 5 for one statistic (false alarm 6e-7), 5.5 for a few hundred.
"""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers import gaussian
from adaquantfl.quantizers.base import Count, whole_levels
from adaquantfl.quantizers.gaussian import cell_means, lloyd_max, step_means
from adaquantfl.quantizers.registry import find

VECTORS = {
    "Gaussian": lambda rng, d: rng.standard_normal(d),
    "log-normal": lambda rng, d: rng.lognormal(size=d),
    "spike": lambda rng, d: rng.standard_normal(d) + 30.0 * (np.arange(d) % 1000 == 0),
}
PUBLISHED = {1: 0.570, 2: 0.133, 4: 0.0357, 8: 0.0096}  # EDEN at 1 to 4 bits


def error(x: np.ndarray, s: int, name: str, stretch: float = 1.0, key: int = 1) -> float:
    y = aq.quantize(x, s, key, None, stretch, name).dequantize().astype(np.float64)
    return float(np.sum((y - x) ** 2) / np.sum(x.astype(np.float64) ** 2))


def cell_mean(a: float, b: float) -> float:
    return float(cell_means(np.array([a]), np.array([b]))[0])


def test_our_own_functions_are_those_of_the_c_library_but_for_the_last_digits() -> None:
    z = np.linspace(1e-3, 25.0, 5001)
    for ours, theirs, rel in (
        (gaussian.exp(-z), [math.exp(-one) for one in z], 4e-16),
        (gaussian.log(z), [math.log(one) for one in z], 1e-14),
        (gaussian.upper_tail(z), [math.erfc(one / math.sqrt(2)) / 2 for one in z], 2e-13),
        (gaussian.inverse_tail(gaussian.upper_tail(z[z < 12])), z[z < 12], 1e-12),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=rel, atol=1e-17)
    assert gaussian.exp(np.array([0.0, -800.0, -np.inf])).tolist() == [1.0, 0.0, 0.0]


def test_the_mean_of_a_cell_is_that_of_its_integral() -> None:
    for a, b in ((0.0, 1.0), (0.3, 0.31), (2.0, 5.0), (6.0, 6.5), (15.0, 16.0)):
        z = np.linspace(a, b, 200_001)
        weight = np.exp(-(z**2 - a**2) / 2)
        assert cell_mean(a, b) == pytest.approx(np.sum(z * weight) / np.sum(weight), rel=1e-4)
    assert cell_mean(1e3, 2e3) == 1e3


def test_tables_for_steps_that_anybody_can_ask_for_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(10):  # each takes half a megabyte
            step_means(0.5 + number / 1000, 65_535)
            step_means(0.5 + number / 1000, 255)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000


@pytest.mark.parametrize("count", [1, 8])
def test_centroids_are_their_cells_means_and_edges_lie_halfway(count: int) -> None:
    centres = lloyd_max(count)
    edges = [0.0, *(centres[1:] + centres[:-1]) / 2, math.inf]
    np.testing.assert_allclose(centres, [cell_mean(edges[k], edges[k + 1]) for k in range(count)], atol=1e-9)


@pytest.mark.parametrize(
    ("s", "kind"), [(1, "Gaussian"), (2, "log-normal"), (4, "spike"), (8, "Gaussian"), (1, "spike")]
)
def test_edens_errors_are_the_published_ones(s: int, kind: str, rng: np.random.Generator) -> None:
    x = VECTORS[kind](rng, 2**18).astype(np.float32)
    assert error(x, s, "eden") == pytest.approx(PUBLISHED[s], rel=0.02)


@pytest.mark.parametrize(("s", "stretch"), [(4, 1.0), (1, 4.0)])
def test_centroids_error_is_that_of_its_cells(s: int, stretch: float, rng: np.random.Generator) -> None:
    # With q = E[c(z)^2] = E[z c(z)] the scaled vector errs by 1 / q - 1.
    step = stretch / s
    z = np.linspace(-12, 12, 2_000_001)
    weight = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    k = np.rint(np.abs(z) / step).astype(int)
    q = np.sum(weight * step_means(step, int(k.max()))[k] ** 2)
    x = rng.lognormal(size=2**18).astype(np.float32)
    assert error(x, s, "centroid", stretch) == pytest.approx(1 / q - 1, rel=0.03)


def drawn(x: np.ndarray, s: int, stretch: float, name: str, draws: int) -> np.ndarray:
    """Each draw is a segment, and so a rotation, of one long vector."""
    levels = aq.quantize(np.tile(x, draws), s, 3, [len(x)] * draws, stretch, name)
    return levels.dequantize().reshape(draws, -1).astype(np.float64)


@pytest.mark.parametrize(
    ("name", "s", "stretch"), [("eden", 1, 1.0), ("eden", 3, 1.0), ("centroid", 1, 1.0), ("centroid", 1, 3.0)]
)
def test_both_are_unbiased(name: str, s: int, stretch: float, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(4096) * np.exp(0.3 * rng.standard_normal(4096))).astype(np.float32)
    seen = drawn(x, s, stretch, name, 500)
    z = (seen.mean(axis=0) - x) / (seen.std(axis=0, ddof=1) / np.sqrt(len(seen)))
    assert np.abs(z).max() < 6  # 4096 coordinates, t with 499 degrees: false alarm 2e-5
    assert np.mean(z**2) < 1.15
    assert abs(np.mean((seen.mean(axis=0) - x) * x) / np.mean(x**2)) < 1e-4  # the length in x's direction is exact


def test_a_dominating_element_comes_back_too_large_by_a_third_of_its_share(rng: np.random.Generator) -> None:
    # Signs and a Hadamard transform are no uniform rotation: given the sign of an element, the coordinates have a mean.
    x = rng.standard_normal(1024).astype(np.float32)
    x[5] = np.sqrt(np.sum(np.delete(x, 5) ** 2) / 9)  # a tenth of the squared norm
    assert drawn(x, 1, 1.0, "eden", 2000)[:, 5].mean() / x[5] == pytest.approx(1 + 0.1 / 3, abs=0.008)
    assert drawn(x, 1, 1.0, "centroid", 2000)[:, 5].mean() / x[5] == pytest.approx(1, abs=0.008)


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


@pytest.mark.parametrize("s", [0.2, 20.0, 500.0])
def test_by_a_rule_centroid_has_as_many_nonzeros_as_the_papers_quantizer(s: float, rng: np.random.Generator) -> None:
    x = rng.standard_normal(1 << 17).astype(np.float32)
    whole, stretch = find("centroid").levels_for(Count(s), np.array([len(x)]))
    theirs, factor = whole_levels(s)
    ours = aq.quantize(x, whole, 1, stretch=stretch, quantizer="centroid")
    expected = int(np.count_nonzero(aq.quantize(x, theirs, 1, stretch=factor).values))
    assert np.count_nonzero(ours.values) == pytest.approx(expected, abs=5 * math.sqrt(2 * expected))
    assert error(x, whole, "centroid", stretch) < error(x, theirs, "uniform", factor)


def test_segments_with_stretches_of_their_own_come_back_unbiased(rng: np.random.Generator) -> None:
    x = rng.standard_normal(96).astype(np.float32)
    stretch = np.array([1.0, 3.0, 8.0])
    mean = np.mean([aq.quantize(x, 1, key, [32] * 3, stretch, "centroid").dequantize() for key in range(300)], axis=0)
    back = [float(mean[i : i + 32] @ x[i : i + 32] / (x[i : i + 32] @ x[i : i + 32])) for i in (0, 32, 64)]
    assert back == pytest.approx([1, 1, 1], abs=1e-3)  # in x's direction it is exact for every key ...
    noise = np.linalg.norm(mean - x) / np.linalg.norm(x)
    assert noise < 0.22  # ... and what is at right angles averages out: sqrt(8 / 300) and a small bias
