"""Writes the measured table of docs/security.md from results/hostile (`python -m studies.hostile`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # studies/ is not in the wheel

from marked import write  # noqa: E402

from studies import hostile  # noqa: E402

PAGE = ROOT / "docs" / "security.md"
RECORDS = ROOT / "results" / "hostile"
TITLES = {
    "adaquant": "AdaQuantFL, s = 1 at the start as in the demo",
    "8bit": "`8bit`, s = 255 in every round",
}


def cell(record: dict[str, Any] | None) -> str:
    """Loss and test accuracy, or what became of the run."""
    if record is None:
        return "not run"
    if record["stopped"]:
        return f"stopped after round {record['rounds']}"
    loss = f"{record['loss']:.2f}" if record["loss"] < 1000 else f"{record['loss']:.0e}"
    return f"{loss} ({100 * record['test_accuracy']:.0f} %)"


def table(records: dict[hostile.Case, dict[str, Any]], model: str, levels: str) -> str:
    """Defences down, attacks across."""
    rows = [f"| {TITLES[levels]} | {' | '.join(hostile.ATTACKS)} |", "| --- |" + " ---: |" * len(hostile.ATTACKS)]
    for defence in hostile.DEFENCES:
        cells = [cell(records.get(hostile.Case(model, levels, attack, defence))) for attack in hostile.ATTACKS]
        rows.append(f"| {defence} | {' | '.join(cells)} |")
    return "\n".join(rows)


def blocks(records: Path = RECORDS) -> dict[str, str]:
    """The marked texts of the page."""
    found = hostile.load(records)
    there = {(case.model, case.levels) for case in found}
    parts = [
        f"Model `{model}`:\n\n{table(found, model, levels)}"
        for model in hostile.MODELS
        for levels in hostile.LEVELS
        if (model, levels) in there
    ]
    return {"hostile": "\n\n".join(parts)}


if __name__ == "__main__":
    write(PAGE, blocks())
