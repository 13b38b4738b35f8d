"""The table of docs/nvflare.md, from records/nvflare.json (`python -m evidence.studies.nvflare_filters`)."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

from adaquantfl.report.tables import markdown
from evidence.pages.marked import read

TITLES = {"none": "no filter", "float16": "NVFlare's float16", "adaquant": "NVFlare's adaquant", "ours": "ours"}
SHOWN = (1, 5, 15)  # rounds


def rows(record: dict[str, Any]) -> list[list[str]]:
    """A row for each filter: bytes of a message, and losses over the seeds."""
    shown = [round for round in SHOWN if round <= record["rounds"]]
    heads = ["kB up", "kB down", "times fewer from round 2", "ms per client", *(f"loss, round {r}" for r in shown)]
    grid, plain = [["filters", *heads]], None
    for method, title in TITLES.items():
        runs = [run for name, run in record["runs"].items() if name.startswith(f"{method}, seed ")]
        up, down = (fmean(sum(run[f"bytes {way}"]) for run in runs) / 1000 for way in ("up", "down"))
        later = fmean(sum(run[f"bytes {way}"][1:]) for run in runs for way in ("up", "down"))
        plain = plain or later
        took = fmean(run["milliseconds"] for run in runs)
        losses = ([run["loss"][round - 1] for run in runs] for round in shown)
        cells = [f"{up:,.0f}", f"{down:,.0f}", f"{plain / later:.0f}", f"{took:.0f}"]
        grid.append([title, *cells, *(f"{fmean(one):.3f} ± {stdev(one):.3f}" for one in losses)])
    return grid


def table() -> str:
    return markdown(rows(read("nvflare")))
