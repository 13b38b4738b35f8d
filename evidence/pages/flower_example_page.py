"""Writes the table of the example app into docs/flower.md and the example's README from flower-example.json.

The record has what the app printed: the command is in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evidence.pages.marked import ROOT, write

RECORD = ROOT / "evidence" / "records" / "flower-example.json"
PAGES = (ROOT / "docs" / "flower.md", ROOT / "examples" / "flower" / "README.md")
NAMES = {"auto": "default: `auto`, `late`", "adaquant": '`rule="adaquant"`, `exact`', "fp32": "float32"}


def blocks(record: Path = RECORD) -> dict[str, str]:
    """The marked text: the last round's loss and accuracy, and the bytes from the second round on."""
    runs: dict[str, list[dict[str, Any]]] = json.loads(record.read_text(encoding="utf-8"))["runs"]
    sent = {
        name: [sum(one[f"kB_{way}"] for one in rounds[1:]) for way in ("up", "down")] for name, rounds in runs.items()
    }
    rows = [
        f"| after {len(runs['fp32'])} rounds | loss | test accuracy | up | down | both ways, times less |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, title in NAMES.items():
        last, (up, down) = runs[name][-1], sent[name]
        less = "" if name == "fp32" else f"{sum(sent['fp32']) / (up + down):.0f}"
        accuracy = f"{100 * last['accuracy']:.1f} %"
        rows.append(f"| {title} | {last['loss']:.3f} | {accuracy} | {up:,.0f} kB | {down:,.0f} kB | {less} |")
    return {"flower-example": "\n".join(rows)}


if __name__ == "__main__":
    for page in PAGES:
        write(page, blocks())
