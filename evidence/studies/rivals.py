"""Our rule and its rivals on measured bytes: three partitions, three seeds, the same quantizer and codec for all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from adaquantfl.report import tables
from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from adaquantfl.runs.methods import parse
from adaquantfl.runs.records import RunRecord, find_runs
from evidence.studies.reproduce import FAILURE

NAME = "rivals"  # of the preset
PARTITIONS = {"iid": "iid", "dirichlet": "dirichlet(0.3)", "sorted": "sorted"}
METHODS = (
    "cost-aware+centroid",
    "dadaquant-time",
    "adaquant",
    "dadaquant-time+centroid",
    "cost-aware",
    "adaquant[s0=1]",
    "2bit",
    "cosine",
    "fp32",
)
OURS = METHODS[0]
SEEDS = 3
COLUMNS = (("wire_bytes_up", 1000.0), ("round", 1.0))

RECORDS = Path("evidence") / "records" / NAME
WORK = Path("runs") / NAME

Groups = dict[str, list[RunRecord]]  # the runs of each method, one a seed


def jobs(methods: Sequence[str], changes: Mapping[str, Any], work: Path) -> list[Job]:
    """Every method and partition with the first seed, then with the next: an unfinished experiment has all of them."""
    chosen = [parse(name) for name in methods or METHODS]
    return [
        Job(
            load_config(NAME, {"partition": partition, **changes, **method.settings, "seed": seed}),
            work / folder / method.folder / f"seed-{seed}",
        )
        for seed in range(SEEDS)
        for folder, partition in PARTITIONS.items()
        for method in chosen
    ]


def load(records: Path) -> dict[str, Groups]:
    """The recorded runs by partition and method, in the order of `METHODS`."""
    found: dict[str, Groups] = {}
    for folder in PARTITIONS:
        runs = find_runs([records / folder]) if any((records / folder).glob("*/*/summary.json")) else []
        groups = {name: [run for run in runs if run.path.parent.name == parse(name).folder] for name in METHODS}
        if kept := {name: group for name, group in groups.items() if group}:
            found[folder] = kept
    return found


def stopped(records: Path, folder: str) -> dict[str, list[int]]:
    """The methods that did not get to the end of their rounds, and after how many they stopped, one a seed."""
    found: dict[str, list[int]] = {}
    for name in METHODS:
        for path in sorted((records / folder / parse(name).folder).glob(f"*/{FAILURE}")):
            found.setdefault(name, []).append(json.loads(path.read_text(encoding="utf-8"))["rounds"])
    return found


def same_seeds(groups: Groups, names: Sequence[str]) -> Groups:
    """Of these methods the runs whose seed all of them have."""
    shared = set.intersection(*({run.seed for run in groups[name]} for name in names))
    return {name: [run for run in groups[name] if run.seed in shared] for name in names}


def level(groups: Groups) -> float:
    """The lowest loss, to two digits, that every run of every method reached."""
    return tables.round_up(max(run.lowest() or math.inf for group in groups.values() for run in group))


def table(groups: Groups, loss: float) -> list[list[str]]:
    """Bytes and rounds to a loss, mean and standard deviation over the seeds, and times ours; fewest bytes first."""
    ours = groups.get(OURS, [])
    to = f"bytes to loss {loss:g} (kB)"
    grid = [["method", to, "times ours", "rounds", "times ours", "seeds", "taken back", "lowest loss", "s"]]
    order = sorted(groups, key=lambda name: mean(groups[name], loss, "wire_bytes_up"))
    for name in order:
        group = groups[name]
        sent, rounds = ([value / unit for value in costs(group, loss, key)] for key, unit in COLUMNS)
        levels = [line["s"] for run in group for line in run.history if line["s"] is not None]
        grid.append(
            [
                f"`{name}`",
                tables.spread(sent),
                times(group, ours, loss, "wire_bytes_up"),
                tables.spread(rounds),
                times(group, ours, loss, "round"),
                str(len(group)),
                str(sum(bool(line.get("undone")) for run in group for line in run.history)),
                tables.spread([run.lowest() or math.nan for run in group]),
                f"{min(levels):.2g} to {max(levels):.3g}" if levels else "float32",
            ]
        )
    return grid


def costs(group: Sequence[RunRecord], loss: float, key: str) -> list[float]:
    """What each run of a method took to the loss; only those that got there."""
    return [float(line[key]) for run in group if (line := run.reached(loss)) is not None]


def mean(group: Sequence[RunRecord], loss: float, key: str) -> float:
    """The mean over the seeds; infinite where one of them did not get there."""
    values = costs(group, loss, key)
    return fmean(values) if len(values) == len(group) and values else math.inf


def times(group: Sequence[RunRecord], ours: Sequence[RunRecord], loss: float, key: str) -> str:
    """A method's mean as a multiple of ours."""
    ratio = mean(group, loss, key) / mean(ours, loss, key) if ours else math.nan
    return f"{ratio:.2f}" if math.isfinite(ratio) else "—"
