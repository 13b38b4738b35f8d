"""The paper's idea in one figure, for docs/paper.md: the same runs against rounds and against bits, and the rule.

python evidence/pages/paper_figure.py
"""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adaquantfl.report.figures import GRID, RC, STYLES
from adaquantfl.runs.records import RunRecord, find_runs
from adaquantfl.theory import adaptive_levels
from evidence.pages.marked import ROOT

FIGURE = ROOT / "docs" / "figures" / "paper.png"
S0 = 2


def figure() -> Figure:
    """Left: loss against rounds. Middle: the same against bits. Right: s as the loss falls."""
    methods = ("adaquant", "2bit", "4bit", "8bit")
    runs = [run for run in find_runs([ROOT / "evidence" / "records" / "demo"]) if run.method in methods]
    (long,) = find_runs([ROOT / "evidence" / "records" / "paper" / "fmnist-cnn-iid" / "adaquant"])
    picture = Figure(figsize=(11, 3.9), layout="constrained")
    rounds, bits, rule = picture.subplots(1, 3)
    for run in runs:
        _curve(rounds, run, "round", 1.0)
        _curve(bits, run, "paper_bits", 1e-6)
    rounds.set(xlabel="Round", ylabel="Training loss", title="A round is a round ...", yscale="log")
    bits.set(xlabel="Bits sent by one client (Mb)", title="... but not all cost the same", yscale="log")
    for axes in (rounds, bits):
        axes.set_yticks([0.5, 1.0, 2.0], labels=["0.5", "1", "2"])
        axes.minorticks_off()
    _rule(rule, long)
    handles, labels = rounds.get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=4)
    return picture


def _evaluated(run: RunRecord) -> list[dict[str, Any]]:
    return [row for row in run.history if row.get("loss") is not None]


def _curve(axes: Axes, run: RunRecord, key: str, unit: float) -> None:
    assert run.summary is not None
    style = STYLES[run.label]
    rows = [{key: 0, "loss": run.summary["initial_loss"]}, *_evaluated(run)]
    axes.plot(
        [row[key] * unit for row in rows], [row["loss"] for row in rows],
        color=style.colour, linestyle=style.dash, marker=style.marker, markersize=4, label=run.label,
    )  # fmt: skip


def _rule(axes: Axes, run: RunRecord) -> None:
    assert run.summary is not None
    start = run.summary["initial_loss"]
    loss = np.geomspace(start, 0.15, 200)
    axes.plot(loss, [adaptive_levels(S0, f0=start, fk=f) for f in loss], color=GRID, linewidth=4, label="the rule")
    rows = _evaluated(run)
    axes.plot([row["loss"] for row in rows], [row["s"] for row in rows], "o", color=STYLES["AdaQuantFL"].colour,
              markersize=4, label="a recorded run")  # fmt: skip
    axes.set(xscale="log", xlabel="Training loss, falling to the right", title="s rises as the loss falls")
    axes.set_ylabel("Levels, s")
    axes.set_xticks([2, 1, 0.5, 0.2], labels=["2", "1", "0.5", "0.2"])
    axes.minorticks_off()
    axes.invert_xaxis()
    axes.legend(loc="upper left")


if __name__ == "__main__":
    with matplotlib.rc_context(RC):
        figure().savefig(FIGURE, dpi=130)
