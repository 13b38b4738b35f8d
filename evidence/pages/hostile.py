"""The tables of evidence/details/hostile.md, from records/hostile (`python -m evidence.studies.hostile`)."""

from __future__ import annotations

from typing import Any

from evidence.pages.marked import RECORDS
from evidence.studies import hostile

TITLES = {
    "adaquant": "AdaQuantFL, s0 = 1",
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


def found_out(records: dict[hostile.Case, dict[str, Any]], model: str) -> str:
    """How often krum left the hostile clients out, where they only flip the sign."""
    parts = []
    for levels in hostile.LEVELS:
        record = records.get(hostile.Case(model, levels, "sign flip", "krum"))
        if record is not None:
            asked = record["rounds"] * len(hostile.HOSTILE)
            parts.append(f"{record['hostile_left_out']} of {asked} with {levels}")
    return f"Of the updates with a flipped sign, krum left out {', '.join(parts)}." if parts else ""


def attacks() -> str:
    """Return every model with its tables, one for each kind of levels."""
    found = hostile.load(RECORDS / "hostile")
    parts = []
    for model in hostile.MODELS:
        there = [levels for levels in hostile.LEVELS if any((c.model, c.levels) == (model, levels) for c in found)]
        if there:
            parts += [f"Model `{model}`:", *(table(found, model, levels) for levels in there), found_out(found, model)]
    return "\n\n".join(filter(None, parts))
