"""Writes the tables of "Noise that follows rows and columns" in docs/rivals.md from their records."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # studies/ is not in the wheel

from marked import write  # noqa: E402

from adaquantfl.report import tables  # noqa: E402
from studies import ablation, shaped  # noqa: E402

PAGE = ROOT / "docs" / "rivals.md"
RECORD = ROOT / "results" / "benchmarks" / "row_rates.json"


def errors() -> str:
    """The error of each quantizer, and how many times that of `shaped` it is; rounds 0 and 20 in one cell."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    wanted = sorted({row["wanted"] for row in found})
    by = {(row["quantizer"], row["wanted"], row["rounds"]): row["error"] for row in found}
    rounds = sorted({row["rounds"] for row in found})
    grid = [["bits per element", *(f"{bits:g}" for bits in wanted)]]
    for name in ("centroid", "mixed", "shaped"):
        grid.append([f"`{name}`", *(", ".join(f"{by[name, bits, k]:.3g}" for k in rounds) for bits in wanted)])
    for name in ("centroid", "mixed"):
        ratios = [[by[name, bits, k] / by["shaped", bits, k] for k in rounds] for bits in wanted]
        grid.append([f"`{name}` / `shaped`", *(", ".join(f"{ratio:.2f}" for ratio in pair) for pair in ratios)])
    return tables.markdown(grid)


def training() -> str:
    """kB to a loss of float32, task by task."""
    head = ["task", "rule", "to float32's loss at", *(f"`{name}`, kB" for name in shaped.QUANTIZERS), "seeds"]
    records = (ROOT / shaped.RECORDS, ROOT / ablation.RECORDS)
    return tables.markdown([head, *([task, *row] for task in shaped.RULES for row in shaped.rows(records, task))])


def blocks() -> dict[str, str]:
    """The marked texts of the page."""
    return {"row-rates": errors(), "shaped-training": training()}


if __name__ == "__main__":
    write(PAGE, blocks())
