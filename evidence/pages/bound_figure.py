"""Theorem 1 on a quadratic, and AdaQuantFL against every fixed s: records/bound and docs/figures/bound.png.

python evidence/pages/bound_figure.py
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import adaquantfl as aq
from evidence.pages.marked import ROOT
from evidence.studies.bound import Quadratic, Trace, train

LEVELS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64)
TARGETS = (1.0, 0.1, 0.02, 0.01, 0.005)


@dataclass(frozen=True)
class Constant(aq.Rule):
    """The same s in every round, any integer."""

    s: int

    def init(self) -> aq.RuleState:
        return aq.RuleState(self.s)


def bits_to(trace: Trace, target: float) -> int | None:
    """Bits a client had sent when the loss, averaged over 25 rounds against noise, was at the target."""
    smooth = np.convolve(trace.loss, np.ones(25) / 25, mode="valid")
    hits = np.flatnonzero(smooth <= target)
    return int(trace.bits[hits[0] + 24]) if len(hits) else None


def main() -> None:
    problem = Quadratic()
    fixed = {s: train(problem, Constant(s), seed=0) for s in LEVELS}
    adaptive = {s0: train(problem, aq.AdaQuant(s0=s0), seed=0) for s0 in (1, 2)}
    record = {
        "problem": asdict(problem),
        "closed_form": problem.best_levels(),
        "fixed": [
            {
                "s": s,
                "condition": problem.condition(s),
                "left_side": trace.mean_squared_gradient,
                "bound": problem.bound(s),
                "bits_to": {str(target): bits_to(trace, target) for target in TARGETS},
            }
            for s, trace in fixed.items()
        ],
        "adaquant": [
            {
                "s0": s0,
                "last_s": int(trace.levels[-1]),
                "left_side": trace.mean_squared_gradient,
                "bits_to": {str(target): bits_to(trace, target) for target in TARGETS},
            }
            for s0, trace in adaptive.items()
        ],
    }
    folder = ROOT / "evidence" / "records" / "bound"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bound.json").write_text(json.dumps(record, indent=2) + "\n")
    draw(problem, fixed, adaptive, ROOT / "docs" / "figures" / "bound.png")
    print(json.dumps(record, indent=1))


def draw(problem: Quadratic, fixed: dict[int, Trace], adaptive: dict[int, Trace], path: Path) -> None:
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    grid = np.geomspace(1, max(LEVELS), 200)
    left.loglog(grid, [problem.bound(s) for s in grid], color="#0072B2", label="right side: the bound")
    measured = [fixed[s].mean_squared_gradient for s in LEVELS]
    left.loglog(LEVELS, measured, "o", color="#D55E00", label="left side: measured")
    left.axvline(
        problem.best_levels(), color="#555555", linestyle=":", label=f"s* = {problem.best_levels():.1f} (eq. 10)"
    )
    left.set(
        xlabel="quantization levels s", ylabel="mean squared gradient norm", title="Theorem 1, every constant known"
    )
    left.legend(frameon=False)
    for (s, style), colour in zip({1: "--", 4: "-.", 64: ":"}.items(), ("#0072B2", "#009E73", "#CC79A7"), strict=True):
        right.loglog(fixed[s].bits / 1e6, fixed[s].loss, style, color=colour, label=f"fixed s = {s}", linewidth=1)
    right.loglog(adaptive[1].bits / 1e6, adaptive[1].loss, color="#D55E00", label="AdaQuantFL, s0 = 1", linewidth=1.8)
    right.set(xlabel="bits sent by one client (Mb)", ylabel="f(w)", title="The trade-off, and the rule")
    right.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
