"""Theorem 1 holds where every constant is known, and its minimum is where the closed form says."""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from evidence.studies.bound import Quadratic, train

PROBLEM = Quadratic(B=1e5)


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8])
def test_the_measured_left_side_is_below_the_bound(bits: int) -> None:
    s = 2**bits - 1
    assert PROBLEM.condition(s) >= 0
    trace = train(PROBLEM, aq.Fixed(bits=bits), seed=0)
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
    trace = train(PROBLEM, aq.AdaQuant(s0=1), seed=0)
    assert trace.levels[0] == 1
    assert trace.levels[-1] > 1
    assert (np.diff(trace.levels) >= -1).all()
