"""Who holds which labels, or how much data: written down when a run starts, and shown in its report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from ..runs.records import RunRecord

FILE = "partition.json"
MOST_CLIENTS = 40  # in the table; beyond that it tells a reader nothing


def read(folder: Path) -> tuple[list[str], list[list[int]]] | None:
    """Class names and counts; None where they were not written, or are not whole."""
    try:
        content = json.loads((folder / FILE).read_bytes())
        classes, counts = [str(name) for name in content["classes"]], content["counts"]
        whole = all(len(row) == max(1, len(classes)) and all(type(count) is int for count in row) for row in counts)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (classes, counts) if whole and counts else None


def section(runs: Sequence[RunRecord], names: Mapping[Path, str]) -> str:
    """Each distinct partition once, as a table with bars; "" where no run has one."""
    holders: dict[str, list[str]] = {}
    for run in runs:
        if (partition := read(run.path)) is not None:
            holders.setdefault(json.dumps(partition), []).append(names[run.path])
    return "\n".join(_table("; ".join(who), *json.loads(partition)) for partition, who in holders.items())


def _table(names: str, classes: list[str], counts: list[list[int]]) -> str:
    caption = escape(f"Samples {'of each class ' if classes else ''}that a client holds: {names}")
    most = max(1, max(map(max, counts)))
    columns = ("Client", *classes, "all") if classes else ("Client", "samples")
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "\n".join(_row(client, row, most, bool(classes)) for client, row in enumerate(counts[:MOST_CLIENTS]))
    left_out = len(counts) - MOST_CLIENTS
    more = f'<p class="note">And {left_out:,} more clients: {FILE} has them all.</p>' if left_out > 0 else ""
    return (
        f'<div class="card scroll" role="region" tabindex="0" aria-label="{caption}">\n'
        f'<table class="holdings"><caption><span>{caption}.</span></caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>\n</div>{more}"
    )


def _row(client: int, row: list[int], most: int, summed: bool) -> str:
    cells = "".join(
        f'<td class="bar" style="--share:{count / most:.3f}">{count:,}</td>' if count else '<td class="none">0</td>'
        for count in row
    )
    total = f"<td>{sum(row):,}</td>" if summed else ""
    return f'<tr><th scope="row">{client}</th>{cells}{total}</tr>'
