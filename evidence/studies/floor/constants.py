"""The best constant number of levels, found afterwards: every constant on every task, and the cheapest of each.

    python -m evidence.studies.floor --constants

No rule can know it beforehand. It says how far ours is from what a constant could do at best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from evidence.studies.floor import records, tables
from evidence.studies.floor.methods import CENTROID, CONSTANT, OURS, Setting
from evidence.studies.floor.tasks import TASKS

RECORDS = Path("evidence") / "records" / "constants"
VALUES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def setting(value: float) -> Setting:
    return Setting(f"s = {value:g}", {"rule": "fixed", **CENTROID, "rule.s": value})


def run(names: Sequence[str], seeds: Sequence[int], floor: Path, folder: Path) -> None:
    """Carry out what is missing."""
    for seed in seeds:
        for name in names:
            for value in VALUES:
                records.run_missing(TASKS[name], CONSTANT, setting(value), seed, folder, floor)


def cells(task: str, floor: Path, folder: Path) -> dict[str, tables.Cell]:
    """Bytes up of each constant, by seed."""
    targets = records.targets(TASKS[task], floor)
    made: dict[str, dict[int, float | None]] = {}
    for one in records.load(task, folder):
        if one.method == CONSTANT:
            made.setdefault(one.setting, {})[one.seed] = one.spent(targets[one.seed], "up")
    return {label: tables.Cell(values) for label, values in made.items()}


def table(floor: Path = records.RECORDS, folder: Path = RECORDS) -> list[list[str]]:
    """Each task: our bytes next to those of the best constant that reached it with every seed."""
    grid = [["task", "ours, kB up", "best constant", "its kB up", "ours / best constant", "constants that reached it"]]
    for task, about in TASKS.items():
        found = cells(task, floor, folder)
        ours = next((row.up for row in tables.rows(task, floor) if row.method == OURS), None)
        if not found or ours is None:
            continue
        there = {label: cell for label, cell in found.items() if math.isfinite(cell.mean)}
        if best := min(there, key=lambda label: there[label].mean, default=""):
            row = [best, there[best].text(), tables.ratio(ours, there[best])]
        else:
            row = ["none", "—", "—"]
        grid.append([about.title, ours.text(), *row, f"{len(there)} of {len(found)}"])
    return grid
