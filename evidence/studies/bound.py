"""Theorem 1's two sides on a problem where every constant is known: a quadratic with Gaussian gradient noise.

f(w) = 1/2 sum of a_j w_j^2 with 0 < a_j <= L, so f* = 0; every client has the same f (i.i.d. data) and a stochastic
gradient is the true one plus noise of total variance sigma2. Nothing is estimated, so the bound can be checked as it is
written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adaquantfl.codecs.accumulator import Accumulator
from adaquantfl.codecs.coding import compress
from adaquantfl.quantizers.base import whole_levels
from adaquantfl.quantizers.streams import stream_key
from adaquantfl.rules import Rule
from adaquantfl.theory import error_bound, learning_rate_condition, optimal_levels, paper_bits

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Quadratic:
    """The problem and how it is trained, in the paper's symbols; B is the budget of bits a client."""

    d: int = 64
    n: int = 8
    tau: int = 4
    eta: float = 0.01
    L: float = 1.0
    sigma2: float = 4.0
    B: float = 1.5e6
    f0: float = 8.0

    @property
    def curvatures(self) -> Array:
        return np.geomspace(self.L / 20, self.L, self.d)

    @property
    def start(self) -> Array:
        """w_0, with f(w_0) = f0 shared equally among the directions."""
        return np.sqrt(2 * self.f0 / (self.d * self.curvatures))

    def constants(self) -> dict[str, Any]:
        """What the formulas of `theory` take."""
        return {
            "n": self.n,
            "tau": self.tau,
            "eta": self.eta,
            "L": self.L,
            "sigma2": self.sigma2,
            "B": self.B,
            "f0": self.f0,
        }

    def best_levels(self) -> float:
        return optimal_levels(**self.constants())

    def bound(self, s: float) -> float:
        return error_bound(s, d=self.d, **self.constants())

    def condition(self, s: float) -> float:
        return learning_rate_condition(s, d=self.d, n=self.n, tau=self.tau, eta=self.eta, L=self.L)


@dataclass(frozen=True)
class Trace:
    """A training until the budget was used: theorem 1's left side, and f at the end of each round."""

    mean_squared_gradient: float
    bits: npt.NDArray[np.int64]
    loss: Array
    levels: npt.NDArray[np.int64]


def train(problem: Quadratic, rule: Rule, seed: int) -> Trace:
    """Quantized local SGD (eq. 2 to 4) with s from `rule`, until a client has sent B bits."""
    a, w = problem.curvatures, problem.start
    rng = np.random.default_rng(seed)
    state, bits, k = rule.init(), 0, 0
    squares: list[float] = []
    history: list[tuple[int, float, float]] = []
    while True:
        loss = float(0.5 * np.sum(a * w**2))
        state = rule.plan(state, bits=bits, dimension=problem.d, loss=loss, eta=problem.eta)
        assert state.s is not None
        s, stretch = whole_levels(state.s)
        bits += paper_bits(problem.d, s)
        if bits > problem.B:
            break
        clients = np.tile(w, (problem.n, 1))
        for _ in range(problem.tau):
            squares.append(float(np.sum((a * clients.mean(axis=0)) ** 2)))
            noise = rng.normal(0, np.sqrt(problem.sigma2 / problem.d), clients.shape)
            clients -= problem.eta * (a * clients + noise)
        total = Accumulator(problem.d)
        for i, update in enumerate(clients - w):
            total.add(compress(update, s, stream_key(seed, k, i), "fixed", stretch=stretch), 1 / problem.n)
        w = w + total.result()
        k += 1
        history.append((bits, float(0.5 * np.sum(a * w**2)), state.s))
    sent, losses, levels = zip(*history, strict=True)
    return Trace(float(np.mean(squares)), np.array(sent), np.array(losses), np.array(levels))
