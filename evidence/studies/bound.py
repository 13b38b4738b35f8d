"""Theorem 1's two sides on a problem where every constant is known: a quadratic with Gaussian gradient noise.

    python -m evidence.studies.bound       evidence/records/bound.json and docs/figures/bound.png

f(w) = 1/2 sum of a_j w_j^2 with 0 < a_j <= L, so f* = 0; every client has the same f (i.i.d. data) and a stochastic
gradient is the true one plus noise of total variance sigma2. Nothing is estimated, so the bound can be checked as it is
written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from adaquantfl.codecs.accumulator import Accumulator
from adaquantfl.codecs.coding import compress
from adaquantfl.quantizers.streams import stream_key
from adaquantfl.theory import (
    adaptive_levels,
    error_bound,
    learning_rate_condition,
    optimal_levels,
    paper_bits,
)

Array = npt.NDArray[np.float64]
Choose = Callable[[int, float], int]  # s, from the bits that a client has sent and the loss
ROOT = Path(__file__).parents[2]
LEVELS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64)
TARGETS = (1.0, 0.1, 0.02, 0.01, 0.005)


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


def adaquant(s0: int, d: int) -> Choose:
    """The paper's rule with all levels of its bits; s is chosen again after every 16 d bits of a client."""
    start, boundary, s = 0.0, 0, s0

    def choose(bits: int, loss: float) -> int:
        nonlocal start, boundary, s
        start = start or loss
        if bits >= boundary:
            boundary = bits + 16 * d
            s = 2 ** math.ceil(math.log2(adaptive_levels(s0, f0=start, fk=min(loss, start)) + 1)) - 1
        return s

    return choose


def train(problem: Quadratic, choose: Choose, seed: int) -> Trace:
    """Quantized local SGD (eq. 2 to 4) with s from `choose`, until a client has sent B bits."""
    a, w = problem.curvatures, problem.start
    rng = np.random.default_rng(seed)
    bits, k = 0, 0
    squares: list[float] = []
    history: list[tuple[int, float, int]] = []
    while True:
        s = choose(bits, float(0.5 * np.sum(a * w**2)))
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
            total.add(compress(update, s, stream_key(seed, k, i), "fixed"), 1 / problem.n)
        w = w + total.result()
        k += 1
        history.append((bits, float(0.5 * np.sum(a * w**2)), s))
    sent, losses, levels = zip(*history, strict=True)
    return Trace(float(np.mean(squares)), np.array(sent), np.array(losses), np.array(levels))


def bits_to(trace: Trace, target: float) -> int | None:
    """Bits that a client had sent when the loss, averaged over 25 rounds against noise, was at the target."""
    smooth = np.convolve(trace.loss, np.ones(25) / 25, mode="valid")
    hits = np.flatnonzero(smooth <= target)
    return int(trace.bits[hits[0] + 24]) if len(hits) else None


def main() -> None:
    """Train with every fixed s and with the rule, write the record and draw the figure."""
    problem = Quadratic()
    fixed = {s: train(problem, lambda bits, loss, s=s: s, seed=0) for s in LEVELS}  # type: ignore[misc]
    rule = {s0: train(problem, adaquant(s0, problem.d), seed=0) for s0 in (1, 2)}
    rows = [
        {"s": s, "condition": problem.condition(s), "left_side": trace.mean_squared_gradient, "bound": problem.bound(s)}
        | {"bits_to": {str(target): bits_to(trace, target) for target in TARGETS}}
        for s, trace in fixed.items()
    ]
    ours = [
        {"s0": s0, "last_s": int(trace.levels[-1]), "left_side": trace.mean_squared_gradient}
        | {"bits_to": {str(target): bits_to(trace, target) for target in TARGETS}}
        for s0, trace in rule.items()
    ]
    record = {"problem": asdict(problem), "closed_form": problem.best_levels(), "fixed": rows, "adaquant": ours}
    text = json.dumps(record, indent=1)
    (ROOT / "evidence" / "records" / "bound.json").write_text(text + "\n", encoding="utf-8")
    draw(problem, fixed, rule[1], ROOT / "docs" / "figures" / "bound.png")
    print(text)


def draw(problem: Quadratic, fixed: dict[int, Trace], rule: Trace, path: Path) -> None:
    """Draw the bound next to what was measured, and the loss against bits."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    grid = np.geomspace(1, max(LEVELS), 200)
    best = problem.best_levels()
    left.loglog(grid, [problem.bound(s) for s in grid], color="#0072B2", label="right side: the bound")
    measured = [fixed[s].mean_squared_gradient for s in LEVELS]
    left.loglog(LEVELS, measured, "o", color="#D55E00", label="left side: measured")
    left.axvline(best, color="#555555", linestyle=":", label=f"s* = {best:.1f} (eq. 10)")
    left.set(xlabel="quantization levels s", ylabel="mean squared gradient norm")
    left.set_title("Theorem 1, every constant known")
    left.legend(frameon=False)
    for (s, style), colour in zip({1: "--", 4: "-.", 64: ":"}.items(), ("#0072B2", "#009E73", "#CC79A7"), strict=True):
        right.loglog(fixed[s].bits / 1e6, fixed[s].loss, style, color=colour, label=f"fixed s = {s}", linewidth=1)
    right.loglog(rule.bits / 1e6, rule.loss, color="#D55E00", label="AdaQuantFL, s0 = 1", linewidth=1.8)
    right.set(xlabel="bits sent by one client (Mb)", ylabel="f(w)", title="The trade-off, and the rule")
    right.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
