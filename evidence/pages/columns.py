"""The columns of history in docs/configuration.md, from runs/columns.py."""

from __future__ import annotations

from adaquantfl.runs.columns import COLUMNS, Column

UNITS = {"b": "bits", "B": "bytes", "s": "seconds"}


def columns() -> str:
    """Every column: what it is, its unit, the runs that have it, and what the summary makes of it."""
    return "\n".join(f"- `{name}`: {column.about}{_more(column)}" for name, column in COLUMNS.items())


def _more(column: Column) -> str:
    facts = [f"in {UNITS[column.unit]}"] if column.unit in UNITS else []
    facts += [f"only with {column.section}"] if column.section else []
    if column.summary:
        before = f" (before the first round `{column.initial}`)" if column.initial else ""
        how = {"last": "", "total": ", the sum", "mean": ", the mean"}[column.over_run]
        facts.append(f"summary: `{column.summary}`{how}{before}")
    text = "; ".join(facts)
    return f" {text[:1].upper()}{text[1:]}." if text else ""
