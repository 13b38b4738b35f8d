"""Writes "What each part saves" of docs/rivals.md from evidence/records/ablation."""

from __future__ import annotations

import math
from pathlib import Path

from adaquantfl.report import tables
from evidence.pages.marked import ROOT, write
from evidence.studies import ablation

PAGE = ROOT / "docs" / "rivals.md"


def overview(records: Path) -> str:
    """Our rule beside the best constant, task by task."""
    grid = [["task"]]
    for share in ablation.SHARES:
        grid[0] += [f"best constant to float32's loss at {share:g}", "ours, times its bytes"]
    for task in ablation.TASKS:
        found = [ablation.best_constant(records, task, share) for share in ablation.SHARES]
        if any(found):
            cells = [cell for one in found for cell in (_cells(*one) if one else ("none got there", "—"))]
            grid.append([task + ablation.earlier_rule(records, task, ablation.OURS), *cells])
    return tables.markdown(grid)


def _cells(constant: str, ratio: float) -> tuple[str, str]:
    return constant, f"{ratio:.2f}" if math.isfinite(ratio) else "ours never"


def details(records: Path) -> str:
    """Every method, task by task."""
    parts = []
    for task in ablation.TASKS:
        if grid := ablation.table(records, task):
            parts.append(f"**{task[0].upper()}{task[1:]}**\n\n{tables.markdown(grid)}")
    return "\n\n".join(parts)


def blocks(records: Path = ROOT / ablation.RECORDS) -> dict[str, str]:
    """The marked texts of the page."""
    spending = tables.markdown(ablation.spending(records))
    return {"ablation": overview(records), "ablation-spending": spending, "ablation-details": details(records)}


if __name__ == "__main__":
    write(PAGE, blocks())
