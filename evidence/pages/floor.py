"""The tables of docs/rivals.md and README at float32's own accuracy, and the README's picture, from records/floor."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from adaquantfl.report.figures import RC, STYLES
from adaquantfl.report.tables import amount, markdown
from evidence.pages.marked import RECORDS, verdict
from evidence.studies.floor import constants, lag, luck, summary, tables
from evidence.studies.floor.methods import CONSTANT, DECOMFL, FLOAT32, OURS
from evidence.studies.floor.records import Record, load
from evidence.studies.floor.tasks import TASKS

FLOOR = RECORDS / "floor"
PICTURE = "cnn-iid"  # the README's task
SHOWN = {
    FLOAT32: ("float32", STYLES["float32"]),
    "AdaQuantFL": ("AdaQuantFL,\nthe paper's rule", STYLES["AdaQuantFL"]),
    OURS: ("auto,\nour default", STYLES["auto"]),
}


def ahead() -> str:
    return summary.verdict(FLOOR)


def methods() -> str:
    return markdown(summary.by_method(FLOOR))


def tasks() -> str:
    return markdown(summary.overview(FLOOR))


def trials() -> str:
    return markdown(summary.trials(FLOOR))


def details() -> str:
    """Every method, task by task."""
    parts = []
    for name, task in TASKS.items():
        if grid := tables.details(name, FLOOR):
            parts.append(f"**{task.title[0].upper()}{task.title[1:]}** (`{name}`)\n\n{markdown(grid)}")
    return "\n\n".join(parts)


def best_constants() -> str:
    return markdown(constants.table(FLOOR, RECORDS / "constants"))


def chance() -> str:
    return markdown(luck.table(FLOOR, RECORDS / "luck"))


def decomfl() -> str:
    """Say what DeComFL took, which sends little in many rounds."""
    texts = []
    for name in ("logistic-iid", "mlp-iid"):
        found = {one.method: one for one in load(name, FLOOR) if one.seed == 0}
        one, target = found[DECOMFL], found[FLOAT32].target(TASKS[name].rounds)
        there = "reached the target" if one.spent(target, "up") else "had not reached it"
        texts.append(
            f"on `{name}` it {there} after {one.round[-1]:,} rounds (float32 has {TASKS[name].rounds}), "
            f"{one.up[-1] / 1000:,.0f} kB up and {one.passes / 1e6:.1f} million examples through the clients' models"
        )
    return f"DeComFL sends seeds and scalars only. With one seed, {'; '.join(texts)}."


def lags() -> str:
    return markdown(lag.table(FLOOR, RECORDS / "luck"))


def aims() -> str:
    """What was aimed at before the runs, misses first."""
    found = lag.aims(FLOOR, RECORDS / "luck")
    return markdown(
        [["what", "aim", "measured", "verdict"], *([a.what, a.aim, a.measured, verdict(a.met)] for a in found)]
    )


def runs() -> tuple[dict[str, Record], float]:
    """Return the picture's runs, seed 0, and the accuracy to reach: float32's last, less 0.5 points."""
    found = {one.method: one for one in load(PICTURE, FLOOR) if one.seed == 0 and one.method in SHOWN}
    return {name: found[name] for name in SHOWN}, found[FLOAT32].target(TASKS[PICTURE].rounds)


def compared() -> str:
    """Return the README's table: float32, the best rival that always reaches it, AdaQuantFL, and who is ahead most."""
    rows = {row[0]: row for row in summary.by_method(FLOOR)[1:]}
    rivals = [name for name, row in rows.items() if name not in (OURS, FLOAT32)]  # in the order of their bytes
    counts = {name: tuple(map(int, row[1].split(" of "))) for name, row in rows.items()}  # reached, run
    reached = {name: f"all {run}" if there == run else f"{there} of {run}" for name, (there, run) in counts.items()}
    most = max(counts[name][1] for name in rivals)  # some take part only where all clients do
    everywhere = next(name for name in rivals if counts[name] == (most, most))
    shown = {
        FLOAT32: "float32",
        everywhere: f"{everywhere}, the cheapest rival that reaches it everywhere",
        "AdaQuantFL": "AdaQuantFL, the paper's rule",
        rivals[0]: "where we lose most: a constant number of levels" if rivals[0] == CONSTANT else rivals[0],
    }
    grid = [["`auto` next to", "tasks where it reaches it", "its bytes up, times those of `auto`"]]
    grid += [[title, reached[name], rows[name][5].split(" ")[0]] for name, title in shown.items()]
    ours = [row.up.mean for task in TASKS for row in tables.rows(task, FLOOR) if row.method == OURS]
    there = sum(map(math.isfinite, ours))
    tasks = f"all {there}" if there == len(ours) else f"{there} of {len(ours)}"
    return f"{markdown(grid)}\n\n`auto` itself reaches it on {tasks} tasks, with every seed."


def draw(path: Path) -> None:
    """Draw test accuracy against the bytes that all clients sent."""
    found, target = runs()
    with matplotlib.rc_context(RC):
        picture = Figure(figsize=(8.6, 4.2), layout="constrained")
        axes = picture.add_subplot()
        beside = ((0.7, 12, "left"), (0.78, -12, "right"), (0.72, 12, "left"))  # where the labels are free of lines
        for (name, one), (height, offset, side) in zip(found.items(), beside, strict=True):
            label, style = SHOWN[name]
            spent = one.spent(target, "up") or 0.0
            axes.plot(one.up[4:], one.smoothed, color=style.colour, lw=2.2)
            axes.plot([spent], [target], "o", color=style.colour, ms=8, mec="white", zorder=5)
            axes.annotate(
                f"{label}\n{amount(spent, 'B')}", (one.spent(height, "up") or 0.0, height), xytext=(offset, 0),
                textcoords="offset points", ha=side, va="center", color=style.colour, fontweight="bold",
            )  # fmt: skip
        axes.axhline(target, color="#9aa1ab", lw=0.8, zorder=0)
        axes.annotate("float32's accuracy, less 0.5 points", (0.6, target), xycoords=("axes fraction", "data"),
                      xytext=(0, 4), textcoords="offset points", ha="center", color="#6b7686")  # fmt: skip
        axes.set(xscale="log", ylabel="Test accuracy", xlabel="Bytes that 8 clients have sent, together")
        axes.set_xlim(found["AdaQuantFL"].up[0] / 2, found[FLOAT32].up[-1] * 8)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: amount(value, "B")))
        axes.yaxis.set_major_locator(MultipleLocator(0.05))
        axes.yaxis.set_major_formatter("{x:.0%}")
        picture.savefig(path, dpi=170)
