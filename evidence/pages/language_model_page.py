"""Writes the tables of docs/how-to/pytorch.md and of examples/flower_lora from their records.

The records: diloco (`python -m evidence.studies.diloco`) and flower-lora.json (benchmarks/flower_lora.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evidence.pages.marked import ROOT, write
from evidence.studies import diloco

PAGE, EXAMPLE = ROOT / "docs" / "how-to" / "pytorch.md", ROOT / "examples" / "flower_lora" / "README.md"
LORA = ROOT / "evidence" / "records" / "flower-lora.json"
NAMES = {"fp32": "float32", "auto": "default: `auto`, `late`"}


def lora(record: Path = LORA) -> str:
    """Bytes and loss of the first, the last, and all rounds."""
    runs: dict[str, list[dict[str, Any]]] = json.loads(record.read_text(encoding="utf-8"))["runs"]
    count = len(runs["fp32"])
    lines = [
        f"| | up, round 1 | up, round {count} | up, all | down, round {count} | test loss after round {count} |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, title in NAMES.items():
        first, last, total = runs[name][0], runs[name][-1], sum(one["kB_up"] for one in runs[name])
        sizes = [first["kB_up"], last["kB_up"], total, last["kB_down"]]
        lines.append(f"| {title} | {' | '.join(f'{size:,.1f} kB' for size in sizes)} | {last['test_loss']:.3f} |")
    return "\n".join(lines)


def blocks(records: Path = ROOT / diloco.RECORDS) -> dict[str, str]:
    """The marked texts of the page."""
    return {"diloco-small": diloco.table("small", records), "flower-lora": lora()}


if __name__ == "__main__":
    write(PAGE, blocks())
    write(EXAMPLE, {"flower-lora": lora()})
