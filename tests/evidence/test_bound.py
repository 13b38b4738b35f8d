"""Theorem 1 holds where every constant is known, and its minimum is where the closed form says."""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from evidence.studies.bound import Quadratic, adaquant, train

PROBLEM = Quadratic(B=1e5)


@pytest.mark.parametrize("s", [1, 3, 31, 255])
def test_the_measured_left_side_is_below_the_bound(s: int) -> None:
    assert PROBLEM.condition(s) >= 0
    trace = train(PROBLEM, lambda bits, loss: s, seed=0)
    assert trace.mean_squared_gradient <= PROBLEM.bound(s)
    assert trace.bits[-1] <= PROBLEM.B < trace.bits[-1] + aq.paper_bits(PROBLEM.d, s)
    assert trace.loss[-1] < PROBLEM.f0


def test_the_closed_form_minimises_the_bound() -> None:
    grid = np.arange(1, 200)
    best = grid[np.argmin([PROBLEM.bound(s) for s in grid])]
    assert abs(best - PROBLEM.best_levels()) <= 1


def test_the_start_has_the_loss_that_is_claimed() -> None:
    assert 0.5 * np.sum(PROBLEM.curvatures * PROBLEM.start**2) == pytest.approx(PROBLEM.f0)


def test_adaquant_raises_s_on_the_way_down() -> None:
    trace = train(PROBLEM, adaquant(1, PROBLEM.d), seed=0)
    assert trace.levels[0] == 1
    assert trace.levels[-1] > 1
    assert set(trace.levels) <= {1, 3, 7, 15, 31, 63, 127}
