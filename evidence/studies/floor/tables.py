"""The tables: bytes until a method is as good as float32, mean and deviation over the seeds, beside ours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from evidence.studies.floor.methods import METHODS, OURS
from evidence.studies.floor.records import RECORDS, Record, load, targets
from evidence.studies.floor.tasks import TASKS, by_accuracy


@dataclass(frozen=True)
class Cell:
    """Some amount by seed; None where a seed never reached it."""

    values: dict[int, float | None]

    def shared(self, other: Cell) -> Cell:
        """Of the seeds that another one has too."""
        return Cell({seed: value for seed, value in self.values.items() if seed in other.values})

    @property
    def reached(self) -> Cell:
        """Of the seeds that have a value."""
        return Cell({seed: value for seed, value in self.values.items() if value is not None})

    @property
    def known(self) -> tuple[float, ...]:
        return tuple(value for value in self.values.values() if value is not None)

    @property
    def mean(self) -> float:
        """Infinite unless every seed reached it."""
        return fmean(self.known) if self.values and len(self.known) == len(self.values) else math.inf

    @property
    def deviation(self) -> float:
        return stdev(self.known) if len(self.known) > 1 else 0.0

    def text(self, unit: float = 1000.0) -> str:
        """Mean and deviation; how many seeds reached it where not all did.

        >>> Cell({0: 1000.0, 1: 3000.0}).text(), Cell({0: 1000.0, 1: None}).text(), Cell({0: None}).text()
        ('2.00 ± 1.41', '1 of 2 reached it', 'never')
        """
        if math.isinf(self.mean):
            return f"{len(self.known)} of {len(self.values)} reached it" if self.known else "never"
        spread = f" ± {number(self.deviation / unit)}" if len(self.known) > 1 else ""
        return number(self.mean / unit) + spread


@dataclass(frozen=True)
class Row:
    """A method on a task."""

    method: str
    setting: str
    up: Cell
    both: Cell
    rounds: Cell
    final: Cell
    failed: int

    @property
    def seeds(self) -> int:
        return len(self.up.values)


def rows(task: str, records: Path = RECORDS) -> list[Row]:
    """Every recorded method over the seeds that float32 has, in the order of bytes up; float32 is the last."""
    found, rounds = load(task, records), TASKS[task].rounds
    goals = targets(TASKS[task], records)
    made = []
    for method in METHODS:
        group = [one for one in found if one.method == method and one.seed in goals]
        if group:
            made.append(_row(group, goals, rounds))
    return sorted(made, key=lambda row: (row.up.mean, -len(row.up.known), list(METHODS).index(row.method)))


def _row(group: list[Record], goals: dict[int, float], rounds: int) -> Row:
    up, both, took = (
        Cell({one.seed: one.spent(goals[one.seed], which) for one in group}) for which in ("up", "both", "round")
    )
    final = Cell({one.seed: one.final(rounds) for one in group})
    return Row(group[0].method, group[0].setting, up, both, took, final, sum(bool(one.failure) for one in group))


def details(task: str, records: Path = RECORDS) -> list[list[str]]:
    """A task's table."""
    found = rows(task, records)
    ours = next((row for row in found if row.method == OURS), None)
    if ours is None:
        return []
    final = "final accuracy (%)" if by_accuracy(TASKS[task]) else "final loss"
    unit = 0.01 if by_accuracy(TASKS[task]) else 1.0
    grid = [["method", "setting", "kB up", "times ours", "kB both ways", "times ours", "rounds", final, "seeds"]]
    for row in found:
        name = row.method + (f" ({row.failed} of {row.seeds} diverged)" if row.failed else "")
        grid.append(
            [
                name,
                row.setting or "—",
                row.up.text(),
                ratio(row.up, ours.up),
                row.both.text(),
                ratio(row.both, ours.both),
                row.rounds.text(1.0),
                row.final.reached.text(unit) if row.final.known else "—",
                str(row.seeds),
            ]
        )
    return grid


def times(cell: Cell, ours: Cell) -> float:
    """A method's mean as a multiple of ours, on the seeds that both have: infinite where only ours reached it, 0 where
    only the method did, NaN where neither did."""
    one, other = cell.shared(ours).mean, ours.shared(cell).mean
    if math.isinf(other):
        return math.nan if math.isinf(one) else 0.0
    return one / other


def ratio(cell: Cell, ours: Cell) -> str:
    """The same as text.

    >>> ratio(Cell({0: 3.0}), Cell({0: 2.0, 1: 8.0})), ratio(Cell({0: None}), Cell({0: 2.0}))
    ('1.50', '—')
    """
    value = times(cell, ours)
    return number(value) if value and math.isfinite(value) else "—"


def number(value: float) -> str:
    """Three digits or so.

    >>> number(0.1234), number(12.34), number(12345.6)
    ('0.12', '12.3', '12,346')
    """
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"
