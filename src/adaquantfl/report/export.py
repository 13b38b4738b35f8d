"""Every round of every run as one CSV file, for programs rather than readers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..runs.records import RunRecord

_FIRST = ("run", "method", "seed", "round")


def history_csv(runs: Sequence[RunRecord], home: Path) -> str:
    """One row a round; a run is named by its folder, seen from `home`. Columns are the history's
    keys; those of a table in it have both names: seconds_train.
    """
    rows = [_row(run, home, line) for run in runs for line in run.history]
    names = list(dict.fromkeys([*_FIRST, *(name for row in rows for name in row)]))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _row(run: RunRecord, home: Path, line: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"run": _safe(run.seen_from(home)), "method": _safe(run.method), "seed": run.seed}
    for key, value in line.items():
        if key == "missing":  # client -> why
            row[key] = json.dumps(value)
        elif isinstance(value, dict):
            row |= {f"{key}_{inner}": number for inner, number in value.items()}
        else:
            row[key] = value
    return row


def _safe(text: str) -> str:
    """A spreadsheet takes text that begins like this for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
