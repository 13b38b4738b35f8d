"""The table of docs/theory.md on how much the constants of `auto` matter."""

from __future__ import annotations

import math

from evidence.studies import sensitivity
from evidence.studies.sensitivity import Row


def constants() -> str:
    """Return each constant at a quarter and four times its value, next to the default, and FedExP's step.

    "never": on some task no run of a seed got there.
    """
    lines = [
        "| | rounds to 80 %, times float32's | to 95 % | worst task | final accuracy, points | bytes up |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    return "\n".join([*lines, *map(_line, sensitivity.rows(sensitivity.load()))])


def _line(row: Row) -> str:
    up = "" if row.up is None else f"{row.up:.2f}"
    rounds = ("never" if math.isinf(one) else f"{one:.2f}" for one in (row.early, row.late, row.worst))
    return f"| {row.setting} | {' | '.join(rounds)} | {100 * row.final:+.1f} | {up} |"
