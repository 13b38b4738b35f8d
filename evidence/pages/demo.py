"""What `make demo` prints, the same over three seeds, and the figure of docs/theory.md, from records/demo.

    adaquantfl compare demo --methods adaquant,1bit,2bit,3bit,4bit,8bit,auto,fp32 --seeds 3 --out runs/demo
    python -m evidence.pages.demo runs/demo

copies configuration, history and summary of each run of that folder to the record. docs/figures/demo.png is the figure
`paper` of the runs that `make demo` makes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adaquantfl.report import tables
from adaquantfl.report.figures import GRID, RC, STYLES, figure
from adaquantfl.report.headline import story
from adaquantfl.runs.records import RunRecord, find_runs
from adaquantfl.theory import adaptive_levels
from evidence.pages.marked import RECORDS, ROOT

RECORD = RECORDS / "demo"
METHODS = ("auto", "adaquant", "2bit", "4bit", "8bit")  # the slowest first
S0 = 2


def copy_record(source: Path) -> None:
    """Keep what is small text, and draw the picture."""
    for path in sorted(source.glob("*/seed-*/*")):
        if path.name in ("config.toml", "history.jsonl", "summary.json"):
            target = RECORD / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    with matplotlib.rc_context(RC):
        figure("paper", shown()).savefig(ROOT / "docs" / "figures" / "demo.png", dpi=130)


def shown() -> list[RunRecord]:
    """Return the runs that `make demo` makes: of the record, those of its methods with seed 0."""
    return [run for run in find_runs([RECORD]) if run.seed == 0 and run.path.parent.name in METHODS]


def printed() -> str:
    """Return what `make demo` prints at its end, without the tables of rounds and of bits by the formula."""
    runs = shown()
    text = tables.to_text(tables.bits_table(runs, measure="wire_bytes_up"))
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(["<!-- output of the demo -->", "```text", *lines, *story(runs), "```"])


def seeds() -> str:
    """Return what each method sent to the demo's loss, over the seeds of the record."""
    runs = find_runs([RECORD])
    (target,) = {run.config["target_loss"] for run in runs}
    found = {name: tables.bits_table(runs, [target], name) for name in ("wire_bytes_up", "paper_bits")}
    bits = {row.method: row.cells[0] for row in found["paper_bits"].rows}
    grid = [[f"To training loss {target:g}", "bytes sent, all clients", "the paper's bits, per client", "seeds"]]
    for row in found["wire_bytes_up"].rows:
        cell = row.cells[0]
        formula = bits.get(row.method)
        prices = [(cell, "B"), (formula, "b")] if formula else [(cell, "B")]
        texts = [tables.amount(one.mean, unit) if one.mean else tables.NOT_REACHED for one, unit in prices]
        grid.append([row.method, *texts, *["not counted"] * (2 - len(texts)), f"{cell.reached} of {cell.runs}"])
    return tables.markdown(grid)


def draw(path: Path) -> None:
    """Draw the same runs against rounds and against bits, and s as the loss falls."""
    runs = [run for run in shown() if run.final("paper_bits") is not None]
    with matplotlib.rc_context(RC):
        picture = Figure(figsize=(11, 3.9), layout="constrained")
        rounds, bits, rule = picture.subplots(1, 3)
        for run in runs:
            _curve(rounds, run, "round", 1.0)
            _curve(bits, run, "paper_bits", 1e-6)
        rounds.set(xlabel="Round", ylabel="Training loss", title="A round is a round ...", yscale="log")
        bits.set(xlabel="Bits sent by one client (Mb)", title="... but not all cost the same", yscale="log")
        for axes in (rounds, bits):
            axes.set_yticks([0.1, 0.2, 0.5, 1.0, 2.0], labels=["0.1", "0.2", "0.5", "1", "2"])
            axes.minorticks_off()
        _rule(rule)
        handles, labels = rounds.get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside lower center", ncols=4)
        picture.savefig(path, dpi=130)


def _curve(axes: Axes, run: RunRecord, key: str, unit: float) -> None:
    assert run.summary is not None
    style = STYLES[run.label]
    rows = [{key: 0, "loss": run.summary["initial_loss"]}, *(row for row in run.history if row.get("loss") is not None)]
    axes.plot(
        [row[key] * unit for row in rows], [row["loss"] for row in rows],
        color=style.colour, linestyle=style.dash, marker=style.marker, markersize=5, markevery=0.12, label=run.label,
    )  # fmt: skip


def _rule(axes: Axes) -> None:
    start = float(np.log(10))  # the loss of a guess between ten classes
    loss = np.geomspace(start, 0.02, 400)
    levels = np.array([adaptive_levels(S0, f0=start, fk=f) for f in loss])
    axes.plot(loss, levels, color=GRID, linewidth=4, label="the rule")
    axes.plot(
        loss, 2 ** np.ceil(np.log2(levels + 1)) - 1, color=STYLES["AdaQuantFL"].colour, label="all levels of its bits"
    )
    axes.set(xscale="log", xlabel="Training loss, falling to the right", title="s rises as the loss falls")
    axes.set_ylabel("Levels, s")
    axes.set_xticks([2, 1, 0.5, 0.2, 0.1, 0.05, 0.02], labels=["2", "1", "0.5", "0.2", "0.1", "0.05", "0.02"])
    axes.minorticks_off()
    axes.invert_xaxis()
    axes.legend(loc="upper left")


if __name__ == "__main__":
    copy_record(Path(sys.argv[1]))
