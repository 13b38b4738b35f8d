"""How much the constants of `auto` matter: each a quarter and four times of what it is, on tasks that are not judged.

    python -m evidence.studies.sensitivity        about 200 runs of a few seconds; evidence/records/sensitivity.jsonl

FedExP's server step (Jhunjhunwala et al. 2023) is tried here too, with float32, where nothing but the step differs.
Lag is counted in rounds to 80 and 95 % of float32's final accuracy, as in `floor/lag.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, ClassVar

import numpy as np

from adaquantfl.bench.tasks import PICTURES
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol.step import STEPS, ServerStep
from adaquantfl.protocol.updates import Combined, Updates
from adaquantfl.runs.config import load_config
from adaquantfl.runs.loop import Run
from adaquantfl.runs.tasks import LOGISTIC
from evidence.studies.floor.lag import goals, rounds_to
from evidence.studies.floor.records import Record
from evidence.studies.traces import current_commit

RECORD = Path("evidence") / "records" / "sensitivity.jsonl"
SEEDS = (100, 101, 102)
FLOAT32, DEFAULT, FEDEXP = "float32", "default", "float32, FedExP"
_LOCAL = {"tau": 5, "batch_size": 32, "loss_samples": 64, "workers": 1, "evaluate_every": 1}
_MLP = {**PICTURES, **_LOCAL, "model": "mlp"}
_FEW = {"eta": 0.1, "clients": 40, "clients_per_round": 4, "loss": "round"}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "MLP, Dirichlet 1.0, 8 clients": ("demo", {**_MLP, "eta": 0.2, "partition": "dirichlet(1.0)", "clients": 8}),
    "MLP, sorted, 6 clients": ("demo", {**_MLP, "eta": 0.15, "tau": 8, "partition": "sorted", "clients": 6}),
    "MLP, i.i.d., 4 clients": (
        "demo",
        {**_MLP, "eta": 0.1, "tau": 20, "partition": "iid", "clients": 4, "rounds": 40},
    ),
    "MLP, Dirichlet 0.2, 4 of 40": ("demo", {**_MLP, **_FEW, "partition": "dirichlet(0.2)", "rounds": 80}),
    "MLP, sorted, 4 of 40": ("demo", {**_MLP, **_FEW, "partition": "sorted", "rounds": 80}),
    "logistic regression, sorted, 6 clients": (
        f"{LOGISTIC}:sorted_labels",
        {**_LOCAL, "eta": 0.1, "tau": 8, "clients": 6},
    ),
    "logistic regression, i.i.d., 6 clients": (f"{LOGISTIC}:iid", {**_LOCAL, "eta": 0.1, "tau": 8, "clients": 6}),
}
ROUNDS = 60
SETTINGS: dict[str, dict[str, Any]] = {
    FLOAT32: {"rule": "fp32", "downlink": "exact"},
    FEDEXP: {"rule": "fp32", "downlink": "exact", "step": "fedexp"},
    DEFAULT: {},
    "delay = 0.01": {"rule.delay": 0.01},
    "delay = 0.16": {"rule.delay": 0.16},
    "noise = 0.0625": {"rule.noise": 0.0625},
    "noise = 1": {"rule.noise": 1.0},
}
# `alone` counts only where the server does not average.
_MEDIAN = {"step": "median"}
MEDIAN: dict[str, dict[str, Any]] = {
    "float32, median": {**SETTINGS[FLOAT32], **_MEDIAN},
    "median": _MEDIAN,
    "median, alone = 0.0075": {**_MEDIAN, "rule.alone": 0.0075},
    "median, alone = 0.12": {**_MEDIAN, "rule.alone": 0.12},
}
MEDIAN_TASKS = tuple(TASKS)[:3]


@dataclass(frozen=True)
class FedExP(ServerStep):
    """The mean update times max(1, sum of ||u_i||^2 / (2 n ||mean u||^2)), the clients' noise taken out."""

    name: ClassVar[str] = "fedexp"
    reference: ClassVar[str] = "Jhunjhunwala et al. 2023"

    def combine(self, updates: Updates) -> Combined:
        """The sum, made longer by what the energies say."""
        made, energies = updates.sum(), updates.energies()
        factor = max(1.0, energies.mean / (2 * energies.signal)) if energies.signal > 0 else 1.0
        return replace(made, update=made.update * np.float32(factor), relay=None)


@dataclass(frozen=True)
class Row:
    """A setting over the tasks: rounds as multiples of float32's to both goals, the end, and bytes against ours."""

    setting: str
    early: float
    late: float
    worst: float
    final: float
    up: float | None


def play(name: str, setting: str, changes: dict[str, Any], seed: int) -> Record:
    """One run, evaluated in every round."""
    source, settings = TASKS[name]
    config = load_config(source, {"rounds": ROUNDS, **settings, "rule": "auto", **changes, "seed": seed})
    engine = LocalEngine(config)
    lines = []
    try:
        run = Run(config, engine)
        while not run.finished:
            lines.append(run.play_round(lambda _: None))
    finally:
        engine.close()
    values = [round(float(line["test_accuracy"]), 5) for line in lines]
    up, down = ([int(lines[-1][f"wire_bytes_{way}"])] for way in ("up", "down"))  # of the whole run
    rounds = [int(line["round"]) for line in lines]
    return Record(
        task=name, method=setting, setting="", seed=seed, accuracy=True, round=rounds, value=values, up=up, down=down,
        failure="", seconds=0.0, commit=current_commit(),
    )  # fmt: skip


def load(path: Path = RECORD) -> dict[tuple[str, str, int], Record]:
    """Every run by task, setting and seed."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    runs = [Record(**json.loads(line)) for line in lines]
    return {(one.task, one.method, one.seed): one for one in runs}


def rows(runs: dict[tuple[str, str, int], Record]) -> list[Row]:
    """What the table shows."""
    found = [_row(runs, setting, TASKS, FLOAT32, DEFAULT) for setting in SETTINGS if setting != FLOAT32]
    plain, ours = "float32, median", "median"
    return found + [_row(runs, setting, MEDIAN_TASKS, plain, ours) for setting in MEDIAN if setting != plain]


def _row(runs: dict[tuple[str, str, int], Record], setting: str, tasks: Iterable[str], plain: str, ours: str) -> Row:
    lags: list[list[float]] = []
    ends, sizes = [], []
    for task in tasks:
        ratios: list[tuple[float, float]] = []
        for seed in SEEDS:
            base, one = runs[task, plain, seed], runs[task, setting, seed]
            early, late = (rounds_to(one, goal) / rounds_to(base, goal) for goal in goals(base))
            ratios.append((early, late))
            ends.append(fmean(one.value[-5:]) - fmean(base.value[-5:]))
            sizes.append(one.up[-1] / runs[task, ours, seed].up[-1])
        lags.append([geometric_mean(goal) if max(goal) < math.inf else math.inf for goal in zip(*ratios, strict=True)])
    means = [geometric_mean(goal) if max(goal) < math.inf else math.inf for goal in zip(*lags, strict=True)]
    up = None if setting.startswith("float32") else geometric_mean(sizes)
    return Row(setting, means[0], means[1], max(max(pair) for pair in lags), fmean(ends), up)


def main() -> None:
    """Run what is missing, and print the rows."""
    STEPS.register(FedExP)
    runs = load()
    wanted = [(task, *item) for task in TASKS for item in SETTINGS.items()]
    wanted += [(task, *item) for task in MEDIAN_TASKS for item in MEDIAN.items()]
    for task, setting, changes in wanted:
        for seed in SEEDS:
            if (task, setting, seed) in runs:
                continue
            one = play(task, setting, changes, seed)
            runs[task, setting, seed] = one
            with RECORD.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(one)) + "\n")
            print(task, setting, seed, f"{one.value[-1]:.3f}", flush=True)
    for row in rows(runs):
        print(row)


if __name__ == "__main__":
    main()
