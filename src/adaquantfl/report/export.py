"""Every round of every run as one CSV file, for programs rather than readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..runs.columns import COLUMNS, flat
from ..runs.records import RunRecord, group_runs
from .tables import csv_text


def history_csv(runs: Sequence[RunRecord], home: Path) -> str:
    """One row per round; a run is named by its folder, seen from `home`, its method as in tables and figures.

    The columns are `COLUMNS`, then those of the history that are not among them; `seconds.train` becomes
    seconds_train.
    """
    rows = [
        {"run": run.seen_from(home), "method": label, "seed": run.seed} | flat(line)
        for label, group in group_runs(runs).items()
        for run in group
        for line in run.history
    ]
    there = {name for row in rows for name in row}
    known = ["run", "method", "seed", "round", *(name for name in COLUMNS if name in there)]
    names = list(dict.fromkeys([*known, *(name for row in rows for name in row)]))
    header = [name.replace(".", "_") for name in names]
    return csv_text([header, *([_cell(row.get(name)) for name in names] for row in rows)])


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@")):
        return f"'{value}"  # a spreadsheet would take it for a formula
    return json.dumps(value) if isinstance(value, dict | list) else value
