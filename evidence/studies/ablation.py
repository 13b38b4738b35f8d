"""What each part of our own method saves: rule, quantizer, balanced levels; beside constants found afterwards.

    python -m evidence.studies.ablation                              run what is missing, then print the tables
    python -m evidence.studies.ablation --tasks mlp-8-clients,cnn-8-clients --seeds 2
    python -m evidence.studies.ablation --table                      only print the tables of what is recorded

Every method has the rounds of float32. Bytes are counted to the losses that float32 has after a quarter and after three
quarters of them. Losses are smoothed over five evaluations, so that no method profits from one lucky evaluation. The
best constant is chosen afterwards. `repair` of cost-aware was chosen after trials on other tasks.
"""

from __future__ import annotations

import argparse
import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from adaquantfl.rules import CostAware
from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from evidence.studies import reproduce
from evidence.studies.letter import crossing

RECORDS, WORK = Path("evidence") / "records" / "ablation", Path("runs") / "ablation"
_SAMPLE = {
    "dataset": "fashion-mnist-sample", "tau": 10, "eta": 0.1, "batch_size": 16, "loss_samples": 128,
    "downlink": "model",
}  # fmt: skip
_MLP = {**_SAMPLE, "model": "mlp", "clients": 8, "rounds": 100}
LANGUAGE = str(Path(__file__).parents[2] / "examples" / "own_task" / "next_character.toml")
LOGISTIC = f"{Path(__file__).parent / 'tasks' / 'logistic.py'}:task"
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "MLP, 8 clients": ("demo", _MLP),
    "MLP, 4 clients": ("demo", {**_MLP, "clients": 4}),
    "MLP, eta = 0.3": ("demo", {**_MLP, "eta": 0.3}),
    "MLP, sorted labels": ("demo", {**_MLP, "partition": "sorted"}),
    "MLP, 4 of 40 clients, Dirichlet 0.3": (
        "demo",
        {**_MLP, "clients": 40, "clients_per_round": 4, "partition": "dirichlet(0.3)", "loss": "round"},
    ),
    "logistic regression, 8 clients": (LOGISTIC, {"clients": 8, "rounds": 60, "eta": 0.05, "downlink": "model"}),
    "language model, 4 clients": (LANGUAGE, {"rounds": 100, "downlink": "model"}),
    "CNN, 8 clients": ("demo", {**_SAMPLE, "model": "cnn", "clients": 8, "rounds": 60}),
}
_OURS = {"quantizer": "centroid", "scope": "balanced"}
CONSTANTS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
METHODS: dict[str, dict[str, Any]] = {
    "float32": {"method": "fp32"},
    "cost-aware, centroid": {"method": "cost-aware", "quantizer": "centroid"},
    **{f"s = {s:g}, centroid, balanced": {"method": "constant", "rule_s0": s, **_OURS} for s in CONSTANTS},
    "AdaQuantFL, s0 = 1, centroid, balanced": {"method": "adaquant", "s0": 1, "rounding": "power", **_OURS},
    "AdaQuantFL, s0 = 1": {"method": "adaquant", "s0": 1, "rounding": "power"},
    "AdaQuantFL, s0 = 2": {"method": "adaquant", "s0": 2, "rounding": "power"},
    "cost-aware, uniform": {"method": "cost-aware", "quantizer": "uniform"},
}
OURS = "cost-aware, centroid"
SURVEY_BYTES = 8 + 4 * len(CostAware().candidates(1.0))  # loss, harm and two numbers for each candidate
SHARES = (0.25, 0.75)  # of float32's rounds: the losses to which bytes are counted


@dataclass(frozen=True)
class Curve:
    """One run: the smoothed losses of its evaluations, and the bytes that all clients had sent by then."""

    losses: tuple[float, ...]
    sent: tuple[float, ...]
    failed: bool

    def bytes_to(self, level: float) -> float | None:
        return crossing(self.losses, self.sent, level)


def job(task: str, method: str, seed: int, work: Path) -> Job:
    """One run."""
    source, settings = TASKS[task]
    changes = {**settings, **METHODS[method], "seed": seed, "evaluate_every": 2, "workers": 1}
    return Job(load_config(source, changes), work / folder(task) / folder(method) / f"seed-{seed}")


def load(records: Path, task: str) -> dict[str, dict[int, Curve]]:
    """The recorded runs of a task by method and seed."""
    found = {}
    for method in METHODS:
        paths = sorted((records / folder(task) / folder(method)).glob("seed-*"))
        if runs := {int(path.name.removeprefix("seed-")): read(path) for path in paths}:
            found[method] = runs
    return found


def table(records: Path, task: str) -> list[list[str]]:
    """Every method on a task: bytes to what float32 has after each of the shares of its rounds; the cheapest first."""
    runs = load(records, task)
    if "float32" not in runs or OURS not in runs:
        return []
    levels = [level(runs, share) for share in SHARES]
    header = ["method"]
    for share in SHARES:
        header += [f"kB to float32's loss at {share:g}", "times ours"]
    rows = []
    for method, group in runs.items():
        spent = [mean(group, one) for one in levels]
        cells = []
        for value, one in zip(spent, levels, strict=True):
            times = ratio(group, runs[OURS], one) if value else None
            cells += [f"{value / 1000:,.0f}" if value else "never", f"{times:.2f}" if times else "—"]
        diverged = sum(one.failed for one in group.values())
        label = method + earlier_rule(records, task, method)
        label += f" ({diverged} of {len(group)} diverged)" if diverged else ""
        rows.append(([value or float("inf") for value in reversed(spent)], [label, *cells, str(len(group))]))
    return [[*header, "seeds"], *(row for _, row in sorted(rows, key=lambda one: one[0]))]


def best_constant(records: Path, task: str, share: float) -> tuple[str, float] | None:
    """The constant with the fewest bytes to a share's loss, and how many times its bytes our rule takes: infinitely
    many where only the constant gets there."""
    runs = load(records, task)
    if "float32" not in runs or OURS not in runs:
        return None
    goal = {seed: loss for seed, loss in level(runs, share).items() if seed in runs[OURS]}
    constants = {
        method: group for method, group in runs.items() if method.startswith("s = ") and goal.keys() <= {*group}
    }
    spent = {method: mean(group, goal) for method, group in constants.items()}
    known = {method: value for method, value in spent.items() if value}
    if not known:
        return None
    best = min(known, key=lambda method: known[method])
    return best, (mean(runs[OURS], goal) or math.inf) / known[best]


def earlier_rule(records: Path, task: str, method: str) -> str:
    """A note where the records of cost-aware on a task have another `repair`, and so an earlier form of the rule."""
    paths = (records / folder(task) / folder(method)).glob("seed-*/config.toml")
    known = [tomllib.loads(path.read_text()) for path in paths if method.startswith("cost-aware")]
    return ", earlier rule" if any(one["repair"] != CostAware().repair for one in known) else ""


def spending(records: Path) -> list[list[str]]:
    """What the bytes of our rule are: contents of frames, surveys, and the heads of frames and messages; all seeds."""
    grid = [["task", "kB, all rounds", "contents of frames", "surveys", "heads", "rounds with a survey", "undone"]]
    for task in TASKS:
        paths = sorted((records / folder(task) / folder(OURS)).glob("seed-*/history.jsonl"))
        if not paths or earlier_rule(records, task, OURS):
            continue
        lines = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
        total, contents = (sum(run[-1][name] for run in lines) for name in ("wire_bytes_up", "payload_bytes_up"))
        rounds = [line for run in lines for line in run]
        surveyed = [line for line in rounds if "harm" in line]
        surveys = sum(SURVEY_BYTES * line["clients"] for line in surveyed)
        shares = [f"{part / total:.0%}" for part in (contents, surveys, total - contents - surveys)]
        counts = [f"{len(surveyed)} of {len(rounds)}", str(sum(line.get("undone", False) for line in rounds))]
        grid.append([task, f"{total / len(lines) / 1000:,.0f}", *shares, *counts])
    return grid


def level(runs: dict[str, dict[int, Curve]], share: float) -> dict[int, float]:
    """The loss of float32 after a share of its rounds, by seed."""
    return {seed: one.losses[int(share * len(one.losses))] for seed, one in runs["float32"].items()}


def mean(group: dict[int, Curve], goal: dict[int, float]) -> float | None:
    """Bytes to the goal, over the seeds; None where one of them never got there."""
    found = [one.bytes_to(goal[seed]) for seed, one in group.items() if seed in goal]
    known = [value for value in found if value is not None]
    return fmean(known) if known and len(known) == len(found) else None


def ratio(group: dict[int, Curve], ours: dict[int, Curve], goal: dict[int, float]) -> float | None:
    """How many times the bytes of ours a method takes, over the seeds of both; None where one never got there."""
    common = {seed: loss for seed, loss in goal.items() if seed in group and seed in ours}
    theirs, own = mean(group, common), mean(ours, common)
    return theirs / own if theirs and own else None


def smoothed(losses: Sequence[float]) -> tuple[float, ...]:
    """The running median of five.

    >>> smoothed([5.0, 1.0, 4.0, 3.0, 2.0])
    (4.0, 3.5, 3.0, 2.5, 3.0)
    """
    return tuple(median(losses[max(0, place - 2) : place + 3]) for place in range(len(losses)))


def folder(name: str) -> str:
    """A name as a folder.

    >>> folder("MLP, eta = 0.3")
    'mlp-eta-0.3'
    """
    return "-".join(name.lower().replace("=", " ").replace(",", " ").split())


def read(path: Path) -> Curve:
    """A recorded run."""
    lines = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
    evaluated = [line for line in lines if line.get("loss") is not None]
    return Curve(
        smoothed([line["loss"] for line in evaluated]),
        tuple(float(line["wire_bytes_up"]) for line in evaluated),
        (path / reproduce.FAILURE).exists(),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(folder(task) for task in TASKS), help="separated by commas")
    parser.add_argument("--methods", default=",".join(folder(name) for name in METHODS), help="separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--table", action="store_true", help="only print the tables of what is recorded")
    options = parser.parse_args(arguments)
    if not options.table:
        tasks = {folder(task): task for task in TASKS}
        methods = {folder(name): name for name in METHODS}
        for names, known in ((options.tasks, tasks), (options.methods, methods)):
            if unknown := [name for name in names.split(",") if name not in known]:
                parser.error(f"no {unknown[0]!r}; there are {', '.join(known)}.")
        for seed in range(options.seeds):
            for task in options.tasks.split(","):
                for method in options.methods.split(","):
                    reproduce.carry_out_to_any_end(
                        job(tasks[task], methods[method], seed, options.work), options.records, options.work
                    )
    for task in TASKS:
        for row in table(options.records, task):
            print(f"{task:36}", *(f"{cell:42}" if place == 0 else f"{cell:>14}" for place, cell in enumerate(row)))


if __name__ == "__main__":
    main()
