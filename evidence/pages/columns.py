"""The tables of history's columns in docs/configuration.md and docs/how-to/runs.md, from runs/columns.py."""

from __future__ import annotations

from adaquantfl.runs.columns import COLUMNS, Column

UNITS = {"b": "bits", "B": "bytes", "s": "seconds", "%": "a share"}


def columns() -> str:
    """Every column: what it is, its unit, the runs that have it, and what the summary makes of it."""
    rows = [
        f"| `{name}` | {column.about} | {UNITS.get(column.unit, '')} | {column.section} | {_summary(column)} |"
        for name, column in COLUMNS.items()
    ]
    return "\n".join(["| column | meaning | unit | only with | summary |", "| --- | --- | --- | --- | --- |", *rows])


# And what a tracker counts by itself.
NO_NUMBERS = ("round", "missing", "clipped", "left_out", "bounded", "refused_losses")


def scalars() -> str:
    """The columns that are numbers, by their names in trackers."""
    names = {column.scalar or name: name for name, column in COLUMNS.items() if name not in NO_NUMBERS}
    rows = [f"| `{scalar}` | `{names[scalar]}` |" for scalar in sorted(names)]
    return "\n".join(["| scalar | column of the history |", "| --- | --- |", *rows])


def _summary(column: Column) -> str:
    before = f" (`{column.initial}`)" if column.initial else ""
    how = {"last": "", "total": ", the sum", "mean": ", the mean"}[column.over_run]
    return f"`{column.summary}`{how}{before}" if column.summary else ""
