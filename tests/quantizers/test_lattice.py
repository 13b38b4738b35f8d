"""The hexagonal lattice with subtractive dither: an error of 5/72 of a step squared, whatever the vector.

Statistical tests use fixed seeds and z = 5 for one statistic (false alarm 6e-7), 5.5 for a few hundred.
"""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq


def many(x: np.ndarray, s: int, draws: int) -> aq.Levels:
    """Each draw is a segment of one long vector."""
    return aq.quantize(np.tile(x, draws), s, aq.stream_key(2, 0, 0), [len(x)] * draws, quantizer="lattice")


def errors_of(x: np.ndarray, drawn: aq.Levels) -> np.ndarray:
    """In steps, a row a draw."""
    step = float(drawn.scales[0]) / drawn.s
    return (drawn.dequantize().reshape(-1, len(x)) - x.astype(np.float64)) / step


@pytest.mark.parametrize(("s", "d"), [(1, 401), (1000, 400)])
def test_the_lattices_error_is_that_of_its_cell_whatever_the_vector(s: int, d: int, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(d) * np.exp(rng.standard_normal(d))).astype(np.float32)
    errors = errors_of(x, many(x, s, 1500))
    assert np.all(errors[:, 0] ** 2 + errors[:, 1] ** 2 <= 1 / 3 + 1e-5)  # the cell's corners are the furthest
    sums = np.sum(errors**2, axis=1)
    expected = d // 2 * 2 * 5 / 72 + d % 2 / 12  # the odd element is on a line
    assert abs(sums.mean() - expected) < 5 * sums.std() / np.sqrt(len(sums))
    z = errors.mean(axis=0) / (errors.std(axis=0) / np.sqrt(len(errors)))
    assert np.abs(z).max() < 5.5
