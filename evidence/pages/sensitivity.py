"""The tables of docs/theory.md on the rule `auto`: how fast noise is repaired, and how much the constants matter."""

from __future__ import annotations

import json
import math

from evidence.studies import repair, sensitivity
from evidence.studies.sensitivity import Row


def ages() -> str:
    """Return what noise still costs some rounds later, as a share of what it cost at first.

    Noise that j rounds have shrunk twice, in the weights and in the slope, costs what the update shows of it 2 j later.
    """
    record, later = json.loads(repair.RECORD.read_text()), repair.AGES[2:]
    rounds = [((first + last) / 2 - 1) / 2 for first, last in later]
    rule = " | ".join(f"{1 / math.sqrt(1 + one):.2f}" for one in rounds)
    lines = [
        f"| | {' | '.join(f'{one:.0f}' for one in rounds)} |",
        f"| --- |{' ---: |' * len(later)}",
        f"| the rule, 1 / sqrt(1 + rounds) | {rule} |",
    ]
    for name, found in record.items():
        first, _, *rest = found["repair"]
        lines.append(f"| {name} | {' | '.join(f'{one / first:.2f}' for one in rest)} |")
    return "\n".join(lines)


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
