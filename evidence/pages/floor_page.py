"""Writes "At float32's own accuracy" of docs/rivals.md from floor, constants, luck, repair and stress."""

from __future__ import annotations

from pathlib import Path

from adaquantfl.report.tables import markdown
from evidence.pages.marked import ROOT, write
from evidence.studies import repair, stress
from evidence.studies.floor import constants, luck, summary, tables
from evidence.studies.floor.records import RECORDS
from evidence.studies.floor.tasks import TASKS

PAGE = ROOT / "docs" / "rivals.md"


def details(records: Path) -> str:
    """Every method, task by task."""
    parts = []
    for name, task in TASKS.items():
        if grid := tables.details(name, records):
            parts.append(f"**{task.title[0].upper()}{task.title[1:]}** (`{name}`)\n\n{markdown(grid)}")
    return "\n\n".join(parts)


def blocks(records: Path = ROOT / RECORDS) -> dict[str, str]:
    """The marked texts of the page."""
    return {
        "floor-ahead": summary.verdict(records),
        "floor-methods": markdown(summary.by_method(records)),
        "floor-tasks": markdown(summary.overview(records)),
        "floor-trials": markdown(summary.trials(records)),
        "floor-details": details(records),
        "floor-constants": markdown(constants.table(records, ROOT / constants.RECORDS)),
        "floor-luck": markdown(luck.table(records, ROOT / luck.RECORDS)),
        "repair": markdown(repair.table(ROOT / repair.RECORDS)),
        "stress": markdown(stress.table(ROOT / stress.RECORDS)),
    }


if __name__ == "__main__":
    write(PAGE, blocks())
