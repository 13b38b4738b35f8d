"""The formulas agree with their own consequences."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

import adaquantfl as aq
from adaquantfl import theory

positive = st.floats(1e-3, 1e3)
problems = st.fixed_dictionaries(
    {
        "n": st.integers(1, 100),
        "tau": st.integers(1, 50),
        "eta": st.floats(1e-4, 1.0),
        "L": positive,
        "sigma2": positive,
        "B": st.floats(1e4, 1e12),
        "f0": st.floats(0.01, 100.0),
    }
)


def test_paper_bits_counts_levels_signs_and_norms() -> None:
    assert aq.paper_bits(10, 1) == 10 * 1 + 10 + 32
    assert aq.paper_bits(10, 2) == 10 * 2 + 10 + 32
    assert aq.paper_bits(10, 3, scales=4) == 10 * 2 + 10 + 128
    for s in range(1, 5000):
        assert aq.paper_bits(7, s) == 7 * int(np.ceil(np.log2(s + 1))) + 7 + 32
    with pytest.raises(ValueError, match="at least 1"):
        aq.paper_bits(10, 0)


@given(problems, st.integers(10, 10**8))
def test_the_closed_form_is_the_numeric_minimum_of_the_bound(problem: dict, d: int) -> None:
    best = aq.optimal_levels(**problem)
    constants = theory.bound_constants(d=d, **problem)
    found = optimize.minimize_scalar(
        lambda u: constants.a1 * np.log2(4 * np.exp(u)) + constants.a2 / np.exp(2 * u),
        bracket=(np.log(best) - 2, np.log(best) + 1),
        tol=1e-12,
    )
    assert np.exp(found.x) == pytest.approx(best, rel=1e-4)
    assert aq.error_bound(best, d=d, **problem) <= min(aq.error_bound(best * r, d=d, **problem) for r in (0.7, 1.5))


@given(problems, st.floats(0.001, 1.0), st.floats(0.01, 1.0), st.integers(1, 64))
def test_the_rule_is_the_closed_form_divided_by_its_start(problem: dict, fall: float, slower: float, s0: int) -> None:
    # eq. 13: s_k / s_0 with f* = 0 and the same B_0, whatever L, sigma, tau and n are.
    start = aq.optimal_levels(**problem)
    later = aq.optimal_levels(**{**problem, "f0": problem["f0"] * fall, "eta": problem["eta"] * slower})
    rule = theory.adaptive_levels(
        s0, f0=problem["f0"], fk=problem["f0"] * fall, eta0=problem["eta"], etak=problem["eta"] * slower
    )
    assert rule == pytest.approx(s0 * later / start, rel=1e-9)
    fixed_rate = theory.adaptive_levels(s0, f0=problem["f0"], fk=problem["f0"] * fall)
    assert fixed_rate == pytest.approx(rule / slower, rel=1e-9)


@given(problems, st.integers(10, 10**6), st.integers(1, 300))
def test_theorem_1_bounds_the_exact_cost(problem: dict, d: int, s: int) -> None:
    # Before C_s was bounded by d log2(4 s) + d + 32 the bound is 2 (f0 - f*) C_s / (eta B tau) + ...
    constants = theory.bound_constants(d=d, **problem)
    p = problem
    exact = (
        2 * p["f0"] * aq.paper_bits(d, s) / (p["eta"] * p["B"] * p["tau"])
        + p["eta"] * p["L"] * (1 + theory.variance_ratio(d, s)) * p["sigma2"] / p["n"]
        + p["eta"] ** 2 * p["sigma2"] / p["n"] * (p["n"] + 1) * (p["tau"] - 1) * p["L"] ** 2
    )
    assert exact <= constants.at(s) * (1 + 1e-9)
    slack = constants.a1 * (np.log2(4 * s) - theory.bits_per_element(s))
    assert constants.at(s) - slack == pytest.approx(exact, rel=1e-9)


@given(problems, st.integers(10, 10**6), st.integers(1, 300), st.integers(1, 50))
def test_theorem_2_with_constants_is_tau_times_theorem_1(problem: dict, d: int, s: int, rounds: int) -> None:
    problem = {**problem, "B": float(rounds * aq.paper_bits(d, s))}
    constants = theory.bound_constants(d=d, **problem)
    theorem1 = constants.at(s) - constants.a1 * (np.log2(4 * s) - theory.bits_per_element(s))
    eta = problem.pop("eta")
    problem.pop("B")
    theorem2 = theory.adaptive_error_bound([eta] * rounds, [s] * rounds, d=d, **problem)
    assert theorem2.total == pytest.approx(problem["tau"] * theorem1, rel=1e-9)


def test_theorem_2_goes_to_zero_when_the_learning_rate_falls_fast_enough() -> None:
    # sum eta_k diverges, sum eta_k^2 does not: the proof of convergence, with s = 1 throughout.
    def bound(rounds: int) -> float:
        etas = 0.1 / np.arange(1, rounds + 1)
        return theory.adaptive_error_bound(etas, np.ones(rounds), d=10, n=4, tau=5, L=1.0, sigma2=1.0, f0=2.0).total

    values = [bound(10**k) for k in range(1, 7)]
    assert all(later < earlier for earlier, later in pairwise(values))


def test_the_learning_rate_condition_is_the_papers() -> None:
    value = theory.learning_rate_condition(2.0, d=100, n=4, tau=10, eta=0.01, L=0.5)
    assert value == pytest.approx(1 - 0.01 * 0.5 * (1 + 100 * 10 / (4 * 4)) - 2 * 0.01**2 * 0.25 * 10 * 9)


def test_rounds_and_rates_must_match() -> None:
    with pytest.raises(ValueError, match="one learning rate"):
        theory.adaptive_error_bound([0.1], [1, 2], d=1, n=1, tau=1, L=1.0, sigma2=1.0, f0=1.0)
