"""Who is ahead where: every method next to ours, over all tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evidence.studies.floor import records, tables
from evidence.studies.floor.methods import CONSTANT, FLOAT32, METHODS, OURS
from evidence.studies.floor.tasks import TASKS, TRIAL, by_accuracy

OWN = (OURS, CONSTANT)  # ours, or made from our parts


@dataclass(frozen=True)
class Beside:
    """A method next to ours on one task, on the seeds that both have. up, both: its bytes as a multiple of ours, as
    `tables.times` has it. tie: bytes up differ by less than the larger deviation."""

    task: str
    method: str
    up: float
    both: float
    tie: bool
    seeds: int

    def noted(self, name: str) -> str:
        """A name, marked where there is one seed only."""
        return name + (" (one seed)" if self.seeds == 1 else "")

    @property
    def ahead(self) -> bool:
        return self.up < 1 and not self.tie


def beside(folder: Path = records.RECORDS) -> Iterator[Beside]:
    """Every recorded method on every recorded task."""
    for task in TASKS:
        found = {row.method: row for row in tables.rows(task, folder)}
        if OURS not in found:
            continue
        ours = found.pop(OURS)
        for method, row in found.items():
            one, other = row.up.shared(ours.up), ours.up.shared(row.up)
            tie = abs(one.mean - other.mean) <= max(one.deviation, other.deviation)
            up, both = tables.times(row.up, ours.up), tables.times(row.both, ours.both)
            yield Beside(task, method, up, both, tie and len(one.values) > 1, len(one.values))


def by_method(folder: Path = records.RECORDS) -> list[list[str]]:
    """Each method next to ours: on how many tasks it reached it, and its bytes where both did."""
    pairs = list(beside(folder))
    grid = [
        ["method", "target reached", "where ours missed it", "fewer bytes than ours", "ties", "bytes up, times ours",
         "bytes both ways, times ours"]
    ]  # fmt: skip
    rows = []
    for method in METHODS:
        group = [one for one in pairs if one.method == method]
        if not group:
            continue
        there = [one for one in group if math.isfinite(one.up)]
        cells = [
            f"{len(there)} of {len(group)}",
            str(sum(one.up == 0 for one in there)),
            str(sum(one.ahead and one.up > 0 for one in there)),
            str(sum(one.tie for one in there)),
        ]
        middle, up = _spread([one.up for one in there])
        rows.append((middle, [method, *cells, up, _spread([one.both for one in there])[1]]))
    return [*grid, *(row for _, row in sorted(rows, key=lambda one: one[0]))]


def overview(folder: Path = records.RECORDS) -> list[list[str]]:
    """Each task: float32's accuracy, our bytes, and who sent the fewest."""
    grid = [
        ["task", "float32's final", "ours, kB up", "fewest up", "times ours", "fewest both ways", "times ours", "seeds"]
    ]
    for task, about in TASKS.items():
        found = {row.method: row for row in tables.rows(task, folder)}
        if OURS not in found:
            continue
        ours, float32 = found[OURS], found[FLOAT32]
        unit = 0.01 if by_accuracy(about) else 1.0
        cells = [about.title, float32.final.text(unit), ours.up.text()]
        for which in ("up", "both"):
            best = min(found.values(), key=lambda row: getattr(row, which).mean)
            cells += [best.method, tables.ratio(getattr(best, which), getattr(ours, which))]
        grid.append([*cells, str(ours.seeds)])
    return grid


def verdict(folder: Path = records.RECORDS) -> str:
    """Who is ahead of ours, on which tasks, by how much; and where ours did not reach it."""
    pairs = [one for one in beside(folder) if one.method != FLOAT32]
    tasks = list(dict.fromkeys(one.task for one in pairs))
    lines = []
    for method in METHODS:
        ahead = [one for one in pairs if one.method == method and one.ahead]
        if both := sorted(one.up for one in ahead if one.up):
            names = ", ".join(one.noted(f"`{one.task}`") for one in ahead if one.up)
            lines.append(
                f"- **{method}** is ahead on {len(both)} of {len(tasks)} tasks ({_range(both)} of our bytes): {names}."
            )
    for task in tasks:
        if there := [one.noted(one.method) for one in pairs if one.task == task and one.up == 0]:
            lines.append(f"- On `{task}` ours did not reach it with every seed. These did: {'; '.join(there)}.")
    ours = {task: next(row.up for row in tables.rows(task, folder) if row.method == OURS) for task in tasks}
    complete = sum(math.isfinite(cell.mean) for cell in ours.values())
    lines.append(f"- Ours reached it with every seed on {complete} of {len(tasks)} tasks.")
    rivals, anybody = ({one.task for one in pairs if one.method not in own and one.up < 1} for own in (OWN, (OURS,)))
    lines.append(
        f"- On {len(tasks) - len(rivals)} of {len(tasks)} tasks no rival needed fewer bytes up than ours. That leaves "
        "out the constant, which is made of our parts. "
        f"With it, it is {len(tasks) - len(anybody)}, where a tie is no win."
    )
    means = [f"{row[0]} {row[5].split(' ')[0]}" for row in by_method(folder)[1:] if row[5] != "—"]
    lines.append(f"- Bytes up as multiples of ours, means over the tasks where both reached it: {'; '.join(means)}.")
    return "\n".join(lines)


def trials(folder: Path = records.RECORDS) -> list[list[str]]:
    """What was tried on the task that is not judged: kB up to the target, or the final accuracy below it."""
    found = records.load(TRIAL.name, folder)
    target = next((one.target(TRIAL.rounds) for one in found if one.method == FLOAT32), math.inf)
    grid = [["method", "settings tried, with kB up to the target", "chosen"]]
    for method, settings in METHODS.items():
        best = records.chosen(method, folder)
        if len(settings) == 1 or best is None:
            continue
        runs = {one.setting: one for one in found if one.method == method}
        cells = [f"{setting.label}: {_trial(runs[setting.label], target)}" for setting in settings]
        grid.append([method, "; ".join(cells), best.label])
    return grid


def _trial(run: records.Record, target: float) -> str:
    spent, final = run.spent(target, "up"), run.final(TRIAL.rounds)
    if spent is not None:
        return tables.number(spent / 1000)
    return "diverged" if final is None else f"never ({100 * final:.1f} %)"


def _spread(values: list[float]) -> tuple[float, str]:
    """The geometric mean, and it as text with the least and the most."""
    known = sorted(value for value in values if value)
    if not known:
        return math.inf, "—"
    middle = math.exp(sum(map(math.log, known)) / len(known))
    return middle, tables.number(middle) + (f" ({_range(known)})" if len(known) > 1 else "")


def _range(values: list[float]) -> str:
    """The least to the most.

    >>> _range([0.5, 0.75, 2.0]), _range([0.5])
    ('0.50 to 2.00', '0.50')
    """
    ends = [tables.number(value) for value in (values[0], values[-1])]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
