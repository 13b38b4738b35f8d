"""Subtractive dither: the paper's levels, and never more error; on the hexagonal lattice 5/72 of a step squared.

Statistical tests use fixed seeds and z = 5 for one statistic (false alarm 6e-7), 5.5 for a few hundred.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers.lattice import _nearest, _point


def fractions(x: np.ndarray, levels: aq.Levels) -> tuple[np.ndarray, float]:
    """p of every element, and the step."""
    step = float(levels.scales[0]) / levels.s
    return (x.astype(np.float64) / step) % 1.0, step


def many(x: np.ndarray, s: int, name: str, draws: int, stretch: float = 1.0) -> aq.Levels:
    """Each draw is a segment of one long vector."""
    return aq.quantize(np.tile(x, draws), s, aq.stream_key(2, 0, 0), [len(x)] * draws, stretch, name)


def errors_of(x: np.ndarray, drawn: aq.Levels) -> np.ndarray:
    """In steps, a row a draw."""
    step = float(drawn.scales[0]) / drawn.s
    return (drawn.dequantize().reshape(-1, len(x)) - x.astype(np.float64)) / step


@pytest.mark.parametrize("s", [1, 3, 40])
def test_the_levels_are_distributed_as_the_papers(s: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal(200).astype(np.float32)
    drawn = many(x, s, "dithered", 3000)
    p, step = fractions(x, drawn)
    values = drawn.values.reshape(3000, 200)
    low = np.floor(x.astype(np.float64) / step)
    assert set(np.unique(values - low)) <= {0.0, 1.0}
    z = ((values - low).mean(axis=0) - p) / np.sqrt(np.maximum(p * (1 - p), 1e-6) / len(values))
    assert np.abs(z).max() < 5.5


@pytest.mark.parametrize(("s", "stretch"), [(1, 4.0), (2, 1.0), (30, 1.0), (500, 1.0)])
def test_the_best_gain_leaves_m_less_3_m_squared(s: int, stretch: float, rng: np.random.Generator) -> None:
    x = rng.standard_normal(400).astype(np.float32)
    drawn = many(x, s, "dithered", 2500, stretch)
    p, _ = fractions(x, drawn)
    m = np.mean(p * (1 - p))
    np.testing.assert_allclose(drawn.numbers, 6 * m, rtol=1e-5)
    errors = errors_of(x, drawn)
    sums = np.sum(errors**2, axis=1)
    assert abs(sums.mean() - 400 * (m - 3 * m**2)) < 5 * sums.std() / np.sqrt(len(sums))
    assert m - 3 * m**2 <= min(m, 1 / 12) + 1e-12
    deviation = np.sqrt((p * (1 - p) * (1 - 6 * m) + 3 * m**2) / len(errors))
    assert np.all(np.abs(errors.mean(axis=0)) < 5.5 * deviation + 8 / len(errors))  # unbiased; 8: rare levels


@pytest.mark.parametrize("gain", [0.0, 0.5, 1.0, 1.5])
def test_any_gain_has_the_error_of_the_formula(gain: float, rng: np.random.Generator) -> None:
    # p (1 - p) (1 - g) + g^2 / 12: the paper's at g = 0, plain dither's 1/12 at g = 1 whatever p is.
    x = rng.standard_normal(400).astype(np.float32)
    drawn = replace(many(x, 6, "dithered", 1500), numbers=np.full(1500, gain, dtype=np.float32))
    p, _ = fractions(x, drawn)
    sums = np.sum(errors_of(x, drawn) ** 2, axis=1)
    expected = np.sum(p * (1 - p) * (1 - gain) + gain**2 / 12)
    assert abs(sums.mean() - expected) < 5 * sums.std() / np.sqrt(len(sums))


@pytest.mark.parametrize("d", [400, 401])
@pytest.mark.parametrize("s", [1, 20, 1000])
def test_the_lattices_error_is_that_of_its_cell_whatever_the_vector(s: int, d: int, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(d) * np.exp(rng.standard_normal(d))).astype(np.float32)
    errors = errors_of(x, many(x, s, "lattice", 1500))
    assert np.all(errors[:, 0] ** 2 + errors[:, 1] ** 2 <= 1 / 3 + 1e-5)  # the cell's corners are the furthest
    sums = np.sum(errors**2, axis=1)
    expected = d // 2 * 2 * 5 / 72 + d % 2 / 12  # the odd element is on a line
    assert abs(sums.mean() - expected) < 5 * sums.std() / np.sqrt(len(sums))
    z = errors.mean(axis=0) / (errors.std(axis=0) / np.sqrt(len(errors)))
    assert np.abs(z).max() < 5.5


def test_the_nearest_point_is_the_nearest(rng: np.random.Generator) -> None:
    points = np.array([_point.py_func(float(a), float(b)) for a in range(-6, 7) for b in range(-6, 7)])
    for x, y in rng.uniform(-3, 3, (500, 2)):
        found = _point.py_func(*_nearest.py_func(x, y))
        assert np.hypot(found[0] - x, found[1] - y) == pytest.approx(np.hypot(*(points - [x, y]).T).min())


def test_the_lattice_has_neighbours_at_distance_one() -> None:
    points = np.array([_point.py_func(float(a), float(b)) for a in range(-4, 5) for b in range(-4, 5)])
    distances = np.sort(np.hypot(*(points - _point.py_func(0.0, 0.0)).T))
    np.testing.assert_allclose(distances[:8], [0, 1, 1, 1, 1, 1, 1, np.sqrt(3)])
