"""What private rounds cost: docs/private.md's tables, from evidence/records/private."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

RECORDS = Path("evidence") / "records" / "private"
_NOTHING = "float32, no masks"


def accuracy() -> str:
    """Test accuracy of each mode, and how far it is from that without masks, over the seeds that were run."""
    lines = Path(RECORDS, "accuracy.jsonl").read_text(encoding="utf-8").splitlines()
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in map(json.loads, lines):
        groups.setdefault((row["task"], row["mode"]), []).append(row)
    shown = [
        "| task | mode | seeds | test accuracy | against float32 | masked bits per element | all bits | epsilon |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (task, mode), rows in sorted(groups.items(), key=lambda item: item[0][0]):
        plain = {row["seed"]: row["accuracy"] for row in groups[task, _NOTHING]}
        found = fmean(row["accuracy"] for row in rows)
        apart = [100 * (row["accuracy"] - plain[row["seed"]]) for row in rows]
        worst = "" if len(apart) == 1 else f" ({min(apart):+.1f} to {max(apart):+.1f})"
        bits, sent = rows[0]["masked_bits"], fmean(row["sent_bits"] for row in rows)
        cells = [
            task,
            mode,
            str(len(rows)),
            f"{found:.1%}",
            "" if mode == _NOTHING else f"{fmean(apart):+.1f}{worst}",
            "" if bits is None else f"{bits:.1f}",
            f"{sent:.1f}",
            "" if rows[0]["epsilon"] is None else f"{rows[0]['epsilon']:.0f}",
        ]
        shown.append(f"| {' | '.join(cells)} |")
    return "\n".join(shown)


def times() -> str:
    """The processor time of masks, against that of local training."""
    found = json.loads(Path(RECORDS, "time.json").read_text(encoding="utf-8"))
    shares = {bits: sum(one.values()) / found["training"] for bits, one in found["masks"].items()}
    return (
        f"Masks of {found['clients']} clients with {found['dimension']:,} parameters, of whom 30 drop out before they "
        f"send, took {shares['1 bit']:.0%} of the processor time of local training with 1 bit per element, and "
        f"{shares['8 bits']:.0%} with 8 bits ({found['tau']} steps of {found['batch_size']} pictures, the paper's CNN, "
        "one thread)."
    )
