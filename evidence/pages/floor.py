"""The tables of docs/rivals.md at float32's own accuracy, and the README's picture, from records/floor and its kin."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from adaquantfl.report.figures import RC, SPARE, STYLES
from adaquantfl.report.tables import amount, markdown
from evidence.pages.marked import RECORDS, verdict
from evidence.studies.floor import constants, lag, luck, summary, tables
from evidence.studies.floor.methods import CONSTANT, FLOAT32, OURS
from evidence.studies.floor.records import Record, load
from evidence.studies.floor.tasks import TASKS

FLOOR = RECORDS / "floor"
PICTURE = "cnn-iid"  # the README's task
SHOWN = {
    FLOAT32: ("float32", STYLES["float32"]),
    "AdaQuantFL": ("AdaQuantFL, s0 = 1", STYLES["AdaQuantFL"]),
    OURS: ("auto (default)", SPARE[0]),
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


def readme() -> str:
    """Return the README's table: rounds and bytes to float32's accuracy."""
    found, target = runs()
    whole = found[FLOAT32].spent(target, "up")
    assert whole is not None
    grid = [[f"to {target:.1%} test accuracy", "rounds", "bytes up", "times fewer than float32"]]
    for name, one in found.items():
        up, rounds = one.spent(target, "up"), one.spent(target, "round")
        assert up is not None and rounds is not None  # noqa: PT018
        grid.append([SHOWN[name][0], f"{rounds:.0f}", amount(up, "B"), f"{whole / up:,.0f}"])
    return markdown(grid)


def against() -> str:
    """Return the README's table of rivals: bytes up as multiples of ours, on three tasks."""
    shown = ("SparseLoCo", CONSTANT, "AdaQuantFL", "DAdaQuant", "EDEN", FLOAT32)
    grid = [["bytes up, times those of `auto`", "seeds", *shown]]
    for task in ("mlp-iid", PICTURE, "language"):
        found = {row.method: row for row in tables.rows(task, FLOOR)}
        cells = [tables.ratio(found[name].up, found[OURS].up) if name in found else "—" for name in shown]
        grid.append([TASKS[task].title, str(found[OURS].seeds), *cells])
    return markdown(grid)


def draw(path: Path) -> None:
    """Draw test accuracy against the bytes that all clients sent."""
    found, target = runs()
    with matplotlib.rc_context(RC):
        picture = Figure(figsize=(8.6, 4.2), layout="constrained")
        axes = picture.add_subplot()
        for name, one in found.items():
            label, style = SHOWN[name]
            axes.plot(one.up[4:], one.smoothed, color=style.colour, linestyle=style.dash, lw=2.2, label=label)
            axes.plot([one.spent(target, "up") or 0.0], [target], "o", color=style.colour, ms=8, mec="white", zorder=5)
        axes.axhline(target, color="#9aa1ab", lw=0.8, zorder=0)
        axes.set(xscale="log", ylabel="Test accuracy", xlabel="Bytes sent by 8 clients, together")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: amount(value, "B")))
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.legend(loc="lower center", bbox_to_anchor=(0.6, 0.0))
        picture.savefig(path, dpi=170)
