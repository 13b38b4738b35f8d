"""The paper's formulas: the bit count, the quantizer's variance, both error bounds and the levels that minimise them.

Symbols are the paper's. d is the dimension, s the levels, n the clients, tau the local steps, eta the learning rate. L
is the smoothness, sigma2 the variance of the stochastic gradients, B the bits that one client has sent. f0 = f(w_0),
and f_star is the minimum of f. Equation numbers are those of the paper as printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAX_LEVELS = 65_535  # what a frame carries


def paper_bits(d: int, s: int, scales: int = 1) -> int:
    """C_s, the bits of one quantized update (eq. 6): a level and a sign for each element, 32 for each norm.

    `scales` is the number of norms: 1 in the paper, the number of tensors with scope "tensor".

    >>> paper_bits(1000, 3)
    3032
    """
    if d < 1 or s < 1 or scales < 1:
        raise ValueError(f"paper_bits(d={d}, s={s}, scales={scales}): all three must be at least 1.")
    return d * bits_per_element(s) + d + 32 * scales  # levels + signs + norms


def bits_per_element(s: int) -> int:
    """b = ceil(log2(s + 1)), the bits of a level without its sign.

    >>> [bits_per_element(s) for s in (1, 2, 3, 4, 255)]
    [1, 2, 2, 3, 8]
    """
    return int(s).bit_length()


def variance_ratio(d: int, s: float) -> float:
    """q = d / s^2, the paper's bound on E||Q(w) - w||^2 / ||w||^2 (eq. 7).

    >>> variance_ratio(d=10_000, s=50)
    4.0
    """
    return d / s**2


def variance_bound(d: int, s: float) -> float:
    """The tighter of the two known bounds on the same ratio: min(d / s^2, sqrt(d) / s).

    >>> variance_bound(d=10_000, s=50), variance_bound(d=10_000, s=1000)
    (2.0, 0.01)
    """
    return float(min(d / s**2, np.sqrt(d) / s))


@dataclass(frozen=True)
class BoundConstants:
    """A_1, A_2 and A_3 of theorem 1 (eq. 9).

    >>> BoundConstants(a1=0.5, a2=8.0, a3=1.0).at(s=4)
    3.5
    """

    a1: float
    a2: float
    a3: float

    def at(self, s: float) -> float:
        """A_1 log2(4 s) + A_2 / s^2 + A_3 (eq. 8).

        >>> [round(BoundConstants(a1=0.5, a2=8.0, a3=1.0).at(s), 2) for s in (1, 4, 5, 16)]
        [10.0, 3.5, 3.48, 4.03]
        """
        return float(self.a1 * np.log2(4.0 * s) + self.a2 / s**2 + self.a3)


def bound_constants(
    *, d: int, n: int, tau: int, eta: float, L: float, sigma2: float, B: float, f0: float, f_star: float = 0.0
) -> BoundConstants:
    """The constants of theorem 1.

    >>> constants = bound_constants(d=1000, n=4, tau=10, eta=0.01, L=1.0, sigma2=1.0, B=1e7, f0=2.0)
    >>> [round(float(a), 6) for a in (constants.a1, constants.a2, constants.a3)]
    [0.004, 2.5, 0.007753]
    """
    a1 = 2.0 * (f0 - f_star) * d / (eta * B * tau)
    a2 = eta * L * d * sigma2 / n
    a3 = eta**2 * sigma2 * (tau - 1) * L**2 * (n + 1) / n + eta * L * sigma2 / n + a1 * (d + 32) / d
    return BoundConstants(a1, a2, a3)


def error_bound(
    s: float, *, d: int, n: int, tau: int, eta: float, L: float, sigma2: float, B: float, f0: float, f_star: float = 0.0
) -> float:
    """Theorem 1: the bound on the mean squared gradient norm after B bits per client with s levels (eq. 8).

    It holds where `learning_rate_condition` is at least 0.

    >>> problem = dict(d=1000, n=4, tau=10, eta=0.01, L=1.0, sigma2=1.0, B=1e7, f0=2.0)
    >>> best = optimal_levels(**{k: v for k, v in problem.items() if k != "d"})
    >>> error_bound(best, **problem) <= min(error_bound(best * r, **problem) for r in (0.9, 1.1))
    True
    """
    return bound_constants(d=d, n=n, tau=tau, eta=eta, L=L, sigma2=sigma2, B=B, f0=f0, f_star=f_star).at(s)


def learning_rate_condition(s: float, *, d: int, n: int, tau: int, eta: float, L: float) -> float:
    """1 - eta L (1 + d tau / (s^2 n)) - 2 eta^2 L^2 tau (tau - 1): theorem 1 asks that it be at least 0.

    It says which s is too coarse for a learning rate:

    >>> [round(learning_rate_condition(s, d=1000, n=4, tau=10, eta=0.01, L=1.0), 3) for s in (4, 8)]
    [-0.591, 0.581]
    """
    return 1.0 - eta * L * (1.0 + d * tau / (s**2 * n)) - 2.0 * eta**2 * L**2 * tau * (tau - 1)


def optimal_levels(
    *, n: int, tau: int, eta: float, L: float, sigma2: float, B: float, f0: float, f_star: float = 0.0
) -> float:
    """s* = sqrt(eta^2 L sigma^2 tau B ln 2 / (n (f0 - f_star))), where theorem 1's bound is smallest (eq. 10).

    With B = B_0 and f0 = f(w_k) it is the level of the k-th interval (eq. 11).

    >>> problem = dict(n=4, tau=10, eta=0.01, L=1.0, sigma2=1.0, B=1e7)
    >>> [round(optimal_levels(f0=loss, **problem), 1) for loss in (2.0, 0.5)]  # a quarter of the loss: twice the levels
    [29.4, 58.9]
    """
    return float(np.sqrt(eta**2 * L * sigma2 * tau * B * np.log(2.0) / (n * (f0 - f_star))))


def adaptive_levels(s0: float, *, f0: float, fk: float, eta0: float = 1.0, etak: float = 1.0) -> float:
    """AdaQuantFL's rule before rounding: s_k = s_0 sqrt(eta_k^2 f(w_0) / (eta_0^2 f(w_k))) (eq. 12 and 13).

    >>> adaptive_levels(2, f0=2.0, fk=0.5)
    4.0
    """
    return float(s0 * (etak / eta0) * np.sqrt(f0 / fk))


@dataclass(frozen=True)
class AdaptiveBound:
    """The four terms of theorem 2, in the paper's order.

    >>> AdaptiveBound(start=0.5, gradient_noise=0.25, drift=0.125, quantization=1.0).total
    1.875
    """

    start: float
    gradient_noise: float
    drift: float
    quantization: float

    @property
    def total(self) -> float:
        """Their sum, the bound.

        >>> AdaptiveBound(0.5, 0.25, 0.125, 1.0).total
        1.875
        """
        return self.start + self.gradient_noise + self.drift + self.quantization


def adaptive_error_bound(
    etas: Sequence[float] | npt.NDArray[np.float64],
    levels: Sequence[float] | npt.NDArray[np.float64],
    *,
    d: int,
    n: int,
    tau: int,
    L: float,
    sigma2: float,
    f0: float,
    f_star: float = 0.0,
) -> AdaptiveBound:
    """Theorem 2: the bound on the learning-rate-weighted mean of sum_t ||grad f||^2 with eta_k and s_k in round k.

    It holds where `learning_rate_condition` is at least 0 in every round. For constant eta and s it is tau times
    theorem 1, whose left side divides by tau as well.

    >>> problem = dict(d=1000, n=4, tau=10, L=1.0, sigma2=1.0, f0=2.0)
    >>> coarse, fine = (adaptive_error_bound([0.02, 0.01], [s, s], **problem) for s in (8, 16))
    >>> fine.quantization / coarse.quantization, fine.drift / coarse.drift
    (0.25, 1.0)
    """
    eta, s = np.asarray(etas, dtype=np.float64), np.asarray(levels, dtype=np.float64)
    if eta.shape != s.shape or eta.ndim != 1 or eta.size == 0:
        raise ValueError(f"Expected one learning rate and one s per round, got shapes {eta.shape} and {s.shape}.")
    total = eta.sum()
    noise = L * tau * sigma2 / (n * total)
    return AdaptiveBound(
        start=float(2.0 * (f0 - f_star) / total),
        gradient_noise=float(noise * np.sum(eta**2)),
        drift=float(sigma2 * (n + 1) * tau * (tau - 1) * L**2 * np.sum(eta**3) / (n * total)),
        quantization=float(noise * np.sum(eta**2 * variance_ratio(d, 1.0) / s**2)),
    )
