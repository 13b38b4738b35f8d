"""How many rounds a method lags behind float32: rounds to a share of what float32 learns, as a multiple of float32's.

Every round is evaluated for this, and curves are centred means of three rounds. Float32's final value is the mean of
the last eighth of its evaluations. The goals are 80 % and 95 % of its final accuracy. For a loss they are 80 % and 97 %
of the fall from its first evaluation. Float32 with other mini-batches (`luck.py`) says how much of a lag is chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from evidence.studies.floor import luck, records, tables
from evidence.studies.floor.methods import FLOAT32, OURS
from evidence.studies.floor.records import Record
from evidence.studies.floor.tasks import TASKS

SHARES = {"accuracy": (0.8, 0.95), "loss": (0.8, 0.97)}  # an early goal and a late one


@dataclass(frozen=True)
class Lag:
    """A task: rounds as multiples of float32's, one list for each goal; infinite where a run never reached it."""

    task: str
    ours: tuple[list[float], list[float]]
    again: tuple[list[float], list[float]]


Which = Callable[[Lag], tuple[list[float], list[float]]]


def _ours(one: Lag) -> tuple[list[float], list[float]]:
    return one.ours


def _again(one: Lag) -> tuple[list[float], list[float]]:
    return one.again


_COLUMNS: tuple[tuple[int, Which], ...] = tuple((goal, which) for goal in (0, 1) for which in (_ours, _again))


@dataclass(frozen=True)
class Aim:
    """What was aimed at, and what was measured."""

    what: str
    aim: str
    measured: str
    met: bool


def goals(run: Record) -> tuple[float, float]:
    """The early and the late goal that a float32 run sets."""
    eighth = max(1, len(run.value) // 8)
    last, first = fmean(run.value[-eighth:]), 0.0 if run.accuracy else run.value[0]
    early, late = (first + share * (last - first) for share in SHARES["accuracy" if run.accuracy else "loss"])
    return early, late


def rounds_to(run: Record, goal: float) -> float:
    """When the smoothed curve first meets a goal, linear between two rounds; infinite where it never does."""
    sign = 1 if run.accuracy else -1
    values = [sign * fmean(run.value[max(0, place - 1) : place + 2]) for place in range(len(run.value))]
    if values and values[0] >= sign * goal:
        return float(run.round[0])
    for (before, value), (start, end) in zip(pairwise(values), pairwise(run.round), strict=True):
        if value >= sign * goal:
            return start + (end - start) * (sign * goal - before) / (value - before)
    return math.inf


def lags(floor: Path = records.RECORDS, folder: Path = luck.RECORDS) -> list[Lag]:
    """Every task whose float32 and ours were evaluated in every round."""
    found = []
    for task in TASKS:
        runs = records.load(task, floor, every_round=True)
        first = {run.seed: run for run in runs if run.method == FLOAT32 and _every_round(run)}
        ours = [run for run in runs if run.method == OURS and run.seed in first]
        again = [run for run in records.load(task, folder, every_round=True) if run.seed in first]
        if ours:
            found.append(Lag(task, _ratios(ours, first), _ratios(again, first)))
    return found


def _every_round(run: Record) -> bool:
    return run.round == list(range(1, len(run.round) + 1))


def _ratios(runs: list[Record], first: dict[int, Record]) -> tuple[list[float], list[float]]:
    made: tuple[list[float], list[float]] = [], []
    for run in runs:
        for ratios, goal in zip(made, goals(first[run.seed]), strict=True):
            ratios.append(rounds_to(run, goal) / rounds_to(first[run.seed], goal))
    return made


def middle(ratios: Iterable[float]) -> float:
    """The geometric mean; NaN without ratios, infinite where one is.

    >>> middle([0.5, 2.0]), middle([1.0, math.inf])
    (1.0, inf)
    """
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(fmean(logs)) if logs else math.nan


def table(floor: Path = records.RECORDS, folder: Path = luck.RECORDS) -> list[list[str]]:
    """Each task: geometric mean over the seeds with the worst run, of ours and of float32 again; then of all tasks."""
    found = lags(floor, folder)
    grid = [["task", "rounds to 80 %", "float32 again", "rounds to 95 %", "float32 again"]]
    for one in found:
        grid.append([TASKS[one.task].title, *(_cell(which(one)[goal]) for goal, which in _COLUMNS)])
    means = (f"**{over_tasks(found, goal, which):.2f}**" for goal, which in _COLUMNS)
    return [*grid, ["**geometric mean of the tasks**", *means]]


def aims(floor: Path = records.RECORDS, folder: Path = luck.RECORDS) -> list[Aim]:
    """What was aimed at before the runs, misses first."""
    found = lags(floor, folder)
    made = []
    for goal, name in enumerate(("80 %", "95 %")):
        mean, worst, again = over_tasks(found, goal, _ours), _worst(found, goal, _ours), _worst(found, goal, _again)
        chance = over_tasks(found, goal, _again)
        beside = "{:.2f}; float32 again: {:.2f}".format
        made += [
            Aim(f"rounds to {name}, mean of the tasks", "at most 1.05", beside(mean, chance), mean <= 1.05),
            Aim(f"rounds to {name}, every task and seed", "at most 1.2", beside(worst, again), worst <= 1.2),
        ]
    for task, most in (("cnn-iid", 400), ("language", 780)):
        if ours := next((row.up for row in tables.rows(task, floor) if row.method == OURS), None):
            made.append(Aim(f"kB up, {TASKS[task].title}", f"at most {most}", ours.text(), ours.mean <= 1000 * most))
    every = (tables.rows(task, floor) for task in TASKS)
    best = [rows for rows in every if {row.method for row in rows} - {OURS, FLOAT32}]  # there are rivals
    fewest = sum(min(rows, key=lambda row: row.both.mean).method == OURS for rows in best)
    made.append(
        Aim("fewest bytes both ways of all methods", "12 of 15 tasks", f"{fewest} of {len(best)}", fewest >= 12)
    )
    return sorted(made, key=lambda aim: aim.met)


def over_tasks(found: list[Lag], goal: int, which: Which) -> float:
    """The geometric mean over tasks of the geometric mean over a task's runs."""
    return middle(middle(which(one)[goal]) for one in found if which(one)[goal])


def _worst(found: list[Lag], goal: int, which: Which) -> float:
    return max((ratio for one in found for ratio in which(one)[goal]), default=math.nan)


def _cell(ratios: list[float]) -> str:
    if not ratios:
        return "—"
    worst = max(ratios)
    if math.isinf(worst):
        return f"{sum(map(math.isfinite, ratios))} of {len(ratios)} reached it"
    return f"{middle(ratios):.2f}" + (f" (worst {worst:.2f})" if len(ratios) > 1 else "")
