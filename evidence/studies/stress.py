"""Whether our rule holds where training is harder: larger steps, few and many clients, some of them, momentum.

    python -m evidence.studies.stress                    run what is missing, then print the table
    python -m evidence.studies.stress --table            only print the table of what is recorded

The MLP of `studies.floor` with one thing changed, i.i.d. and with sorted labels. The rule has nothing set. Targets and
rounds are counted as there. A rule that raised its levels for good would send ever larger rounds: the table has the
bytes of the last quarter of the rounds, relative to those of the second one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from evidence.studies.floor.methods import FLOAT32, METHODS, OURS
from evidence.studies.floor.records import Record, load, run_missing, targets
from evidence.studies.floor.tables import number
from evidence.studies.floor.tasks import TASKS, FloorTask

RECORDS = Path("evidence") / "records" / "stress"
SEEDS = (0, 1, 2)
RULES = (OURS,)
BASES = {"iid": "MLP, i.i.d.", "sorted": "MLP, sorted labels"}
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "eta-x3": ("3 times the learning rate", {"eta": 0.6}),
    "2-clients": ("2 clients", {"clients": 2}),
    "100-clients": ("100 clients", {"clients": 100}),
    "4-of-40": ("4 of 40 clients", {"clients": 40, "clients_per_round": 4, "loss": "round"}),
    "momentum": ("momentum 0.9, a quarter of the learning rate", {"momentum": 0.9, "eta": 0.05}),
}


def tasks() -> list[FloorTask]:
    """Every change on every partition."""
    return [
        replace(
            TASKS[f"mlp-{base}"],
            name=f"mlp-{base}-{name}",
            title=f"{title}, {about}",
            settings={**TASKS[f"mlp-{base}"].settings, **change},
        )
        for base, title in BASES.items()
        for name, (about, change) in CHANGES.items()
    ]


def growth(record: Record) -> float:
    """Bytes up in the last quarter of the rounds over those of the second quarter.

    >>> rounds = [1, 2, 3, 4]
    >>> growth(Record("t", "m", "", 0, True, rounds, [0.0] * 4, [10, 20, 30, 70], [0] * 4, "", 0.0, ""))
    4.0
    """
    up, quarter = [0, *record.up], len(record.up) // 4
    return (up[-1] - up[-1 - quarter]) / (up[2 * quarter] - up[quarter]) if quarter else math.nan


def table(records: Path = RECORDS) -> list[list[str]]:
    """Each task and rule: accuracies, how often it got there or diverged, bytes, and how they grew."""
    grid = [["task", "float32 (%)", "rule", "its final (%)", "got there", "diverged", "kB up in all", "growth"]]
    for task in tasks():
        found, goals = load(task.name, records), targets(task, records)
        floats = [final for one in found if one.method == FLOAT32 if (final := one.final(task.rounds)) is not None]
        for rule in RULES:
            runs = [one for one in found if one.method == rule]
            if not runs:
                continue
            whole = [one for one in runs if not one.failure]
            finals = [final for one in whole if (final := one.final(task.rounds)) is not None]
            there = sum(one.spent(goals[one.seed], "up") is not None for one in runs)
            grid.append(
                [
                    task.title,
                    _percent(floats),
                    rule,
                    _percent(finals),
                    f"{there} of {len(runs)}",
                    str(sum(bool(one.failure) for one in runs)),
                    number(fmean(one.up[-1] for one in runs) / 1000),
                    number(fmean(map(growth, whole))) if whole else "—",
                ]
            )
    return grid


def _percent(values: Sequence[float]) -> str:
    return f"{100 * fmean(values):.1f}" if values else "diverged"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--table", action="store_true", help="only print the table of what is recorded")
    options = parser.parse_args(arguments)
    if not options.table:
        for seed in SEEDS:
            for task in tasks():
                for method in RULES:
                    run_missing(task, method, METHODS[method][0], seed, options.records)
    for row in table(options.records):
        print(*(f"{cell:>24}" for cell in row))


if __name__ == "__main__":
    main()
