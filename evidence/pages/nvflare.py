"""The table of docs/nvflare.md, from records/nvflare.json (`python -m evidence.studies.nvflare_filters`)."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from adaquantfl.report.tables import markdown, significant
from evidence.pages.marked import read

DEFAULT = "ours"  # QuantizeFilter without arguments
COARSE = "ours centroid 8"  # the setting for many clients
LAST = 5  # rounds whose mean is the end of a training
SHOWN = (1, 5, 15)  # rounds
METHODS = ("none", "adaquant", DEFAULT, COARSE)  # the others are in the record


def title(method: str) -> str:
    if method == "none":
        return "no filter"
    if method == DEFAULT:
        return "ours, default"
    return f"ours, {settings(method)}" if method.startswith("ours") else f"NVFlare, {method}"


def settings(method: str) -> str:
    _, quantizer, error = method.split()
    return f'`error={error}, quantizer="{quantizer}"`'


def first_seed(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The runs of seed 0, by filter."""
    runs = {name.rpartition(", seed "): run for name, run in record["runs"].items()}
    return {method: run for (method, _, seed), run in runs.items() if seed == "0"}


def rows(record: dict[str, Any]) -> list[list[str]]:
    """A row for each filter, of the first seed."""
    runs = first_seed(record)
    plain = runs["none"]["bytes"]
    shown = [round for round in SHOWN if round <= record["rounds"]]
    grid = [["filter", "bytes", "times smaller", "error", "milliseconds", *(f"loss, round {r}" for r in shown)]]
    for method in (one for one in METHODS if one in runs):
        run = runs[method]
        cost = [f"{run['bytes']:,.0f}", f"{plain / run['bytes']:.1f}"]
        took = f"{1000 * record['seconds'][method]:.0f}"
        work = ["0", "0"] if method == "none" else [significant(run["error"], 2), took]
        grid.append([title(method), *cost, *work, *(f"{run['loss'][r - 1]:.3f}" for r in shown)])
    return grid


def runs_of(record: dict[str, Any], method: str) -> list[dict[str, Any]]:
    """Those of all seeds that were played."""
    return [run for name, run in record["runs"].items() if name.startswith(f"{method}, seed ")]


def ending(record: dict[str, Any], method: str) -> float:
    """The mean loss of the last rounds, over all seeds."""
    return fmean(loss for run in runs_of(record, method) for loss in run["loss"][-LAST:])


def summary(record: dict[str, Any]) -> str:
    """The default next to no filter and to the smallest message of NVFlare's filters; then our smallest setting."""
    runs, seeds = first_seed(record), len(runs_of(record, DEFAULT))
    plain = runs["none"]["bytes"]
    times = {method: plain / run["bytes"] for method, run in runs.items()}
    last = plain / fmean(runs[DEFAULT]["bytes by round"][-LAST:])
    theirs = max((one for one in times if not one.startswith("ours")), key=lambda one: times[one])
    return (
        f"With the default a message is {times[DEFAULT]:.0f} times smaller than with no filter, on average over "
        f"{record['rounds']} rounds. In the last {LAST} it is {last:.0f} times smaller. The smallest of NVFlare's, "
        f"{theirs}, is {times[theirs]:.0f} times smaller. The mean loss of the last {LAST} rounds over {seeds} seeds "
        f"is {ending(record, DEFAULT):.3f} with the default and {ending(record, 'none'):.3f} without a filter. With "
        f"{settings(COARSE)} a message is {times[COARSE]:.0f} times smaller, and that loss is "
        f"{ending(record, COARSE):.3f}."
    )


def table() -> str:
    record = read("nvflare")
    return f"{markdown(rows(record))}\n\n{summary(record)}"
