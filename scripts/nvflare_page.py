"""Write the table of docs/nvflare.md from results/nvflare.json (`python -m studies.nvflare_filters`).

python scripts/nvflare_page.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from marked import write

from adaquantfl.report.tables import markdown, significant

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "nvflare.json"
PAGE = ROOT / "docs" / "nvflare.md"
DEFAULT = 8.0  # `error` of QuantizeFilter; tests/nvflare holds it to the code
SHOWN = (1, 3, 5, 10, 15)  # rounds


def title(method: str) -> str:
    if method == "none":
        return "no filter"
    name, _, error = method.partition(" ")
    return f"ours, `error={error}`" if error else f"NVFlare, {name}"


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
    for method, run in runs.items():
        cost = [f"{run['bytes']:,.0f}", f"{plain / run['bytes']:.1f}"]
        took = f"{1000 * record['seconds'][method]:.0f}"
        work = ["0", "0"] if method == "none" else [significant(run["error"], 2), took]
        grid.append([title(method), *cost, *work, *(f"{run['loss'][r - 1]:.3f}" for r in shown)])
    return grid


def ending(record: dict[str, Any], method: str) -> tuple[float, int]:
    """The mean loss of the last five rounds, over all seeds that were played, and how many there are."""
    runs = [run for name, run in record["runs"].items() if name.startswith(f"{method}, seed ")]
    return fmean(loss for run in runs for loss in run["loss"][-5:]), len(runs)


def summary(record: dict[str, Any]) -> str:
    """The default setting next to no filter, and next to the smallest message of NVFlare's filters."""
    runs, default = record["runs"], f"ours {DEFAULT:g}"
    times = {method: runs["none, seed 0"]["bytes"] / run["bytes"] for method, run in first_seed(record).items()}
    theirs = max((one for one in times if not one.startswith("ours")), key=lambda one: times[one])
    (loss, seeds), (plain, _) = ending(record, default), ending(record, "none")
    return (
        f"With the default, `error={DEFAULT:g}`, a message is {times[default]:.0f} times smaller than with no filter; "
        f"the smallest of NVFlare's, {theirs}, is {times[theirs]:.0f} times smaller. The mean loss of the last five "
        f"rounds over {seeds} seeds is {loss:.3f} with it and {plain:.3f} without a filter."
    )


def blocks() -> dict[str, str]:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return {"nvflare": f"{markdown(rows(record))}\n\n{summary(record)}"}


if __name__ == "__main__":
    write(PAGE, blocks())
