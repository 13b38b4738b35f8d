"""How much privacy is spent: Renyi divergences of the rounds, added up, and epsilon from them by `dp-accounting`.

A round's divergence is that between the sum with one client's update and with zeros in its place. No amplification by
sampling is counted, because the server knows whom it asked.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import EngineError

ORDERS = (*range(2, 65), *range(68, 257, 4), 320, 384, 512, 1024)  # Skellam's bound is for whole ones
Spent = npt.NDArray[np.float64]


class BudgetSpent(EngineError):
    """The next round would spend more privacy than the run may.

    >>> from adaquantfl.private import BudgetSpent
    >>> issubclass(BudgetSpent, Exception)
    True
    """


def gaussian_round(multiplier: float) -> Spent:
    """The divergences of Gaussian noise, whose deviation is `multiplier` times the longest update."""
    return np.array(ORDERS) / (2.0 * multiplier**2)


def skellam_round(variance: float, longest: float, elements: int) -> Spent:
    """The divergences of Skellam noise: theorem 3.5 of Agarwal, Kairouz and Liu, NeurIPS 2021.

    variance: of the noise of the sum in each element. longest: the largest l2 norm of an update. Since an update has
    whole numbers, its l1 norm is at most its square.
    """
    orders, l1 = np.array(ORDERS, dtype=np.float64), min(longest**2, elements**0.5 * longest)
    close = ((2 * orders - 1) * longest**2 + 6 * l1) / (4 * variance**2)
    spent: Spent = orders * longest**2 / (2 * variance) + np.minimum(close, 3 * l1 / (2 * variance))
    return spent


def epsilon(spent: Spent, delta: float) -> float:
    """Epsilon for this delta."""
    from dp_accounting.rdp import compute_epsilon  # it loads SciPy

    return float(compute_epsilon(ORDERS, spent.tolist(), delta)[0]) if spent.any() else 0.0


def check(spent: Spent, this_round: Spent, budget: float, delta: float, round: int) -> None:
    """BudgetSpent where the round must not be played."""
    now, then = epsilon(spent, delta), epsilon(spent + this_round, delta)
    if then > budget:
        raise BudgetSpent(
            f"Round {round} would spend epsilon = {then:.3g} at delta = {delta:g}, and private.epsilon = {budget:g}; "
            f"so far it is {now:.3g}. The model so far keeps that promise: stop here, or start a run with more noise."
        )
