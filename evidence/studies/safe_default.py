"""Whether the default can be trusted: `auto` against float32 on nine tasks, three seeds each, nothing set.

    python -m evidence.studies.safe_default --out safe-default          runs what is missing, then prints the table
    python -m evidence.studies.safe_default --tasks mlp,lora --seeds 2

A run that is interrupted is resumed. The table has the final test accuracy of both, their difference in standard
deviations of float32 over the seeds, and how many times fewer bytes were sent.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from adaquantfl.runs.tasks import LOGISTIC
from evidence.studies.traces import keep, load

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORDS, WORK = Path("evidence") / "records" / "safe-default", Path("runs") / "safe-default"
METHODS = ("fp32", "auto")
_SAMPLE = {"dataset": "fashion-mnist-sample", "downlink": "late", "eta": 0.1}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "logistic": (f"{LOGISTIC}:iid", {"clients": 8, "rounds": 60, "eta": 0.05}),
    "mlp": ("demo", {**_SAMPLE, "model": "mlp", "clients": 8, "rounds": 100}),
    "cnn": ("demo", {**_SAMPLE, "model": "cnn", "clients": 8, "rounds": 60}),
    "language": (str(ROOT / "examples" / "own_task" / "next_character.toml"), {"rounds": 100}),
    "lora": (f"{HERE / 'tasks' / 'lora.py'}:task", {"clients": 4, "rounds": 60, "eta": 0.3, "batch_size": 32}),
    "mlp, 5 of 100": (
        "demo",
        {**_SAMPLE, "model": "mlp", "clients": 100, "clients_per_round": 5, "rounds": 300, "loss": "round"}
        | {"partition": "dirichlet(0.3)"},
    ),
    "mlp, median": ("demo", {**_SAMPLE, "model": "mlp", "clients": 8, "rounds": 100, "step": "median"}),
    "mlp, trimmed mean": ("demo", {**_SAMPLE, "model": "mlp", "clients": 8, "rounds": 100, "step": "trimmed-mean"}),
    "mlp, krum": ("demo", {**_SAMPLE, "model": "mlp", "clients": 8, "rounds": 100, "step": "krum", "step.hostile": 2}),
}


@dataclass(frozen=True)
class Row:
    """A task's result: one value for each seed."""

    task: str
    dimension: int
    measure: str  # "accuracy", or "test loss" where there is none
    float32: tuple[float, ...]
    auto: tuple[float, ...]
    up: float  # times fewer bytes than float32
    both: float

    @property
    def deviations(self) -> float:
        """How far auto is behind float32, in standard deviations of float32; below 0 it is ahead."""
        behind = fmean(self.float32) - fmean(self.auto)
        spread = stdev(self.float32) if len(self.float32) > 1 else 0.0
        return (behind if self.measure == "accuracy" else -behind) / (spread or math.nan)


def job(task: str, method: str, seed: int, work: Path) -> Job:
    """One run."""
    source, settings = TASKS[task]
    changes = {"evaluate_every": 10, "workers": 1, **settings, "rule": method, "seed": seed}
    if method == "fp32":
        changes["downlink"] = "model"
    return Job(load_config(source, changes), work / _folder(task) / method / f"seed-{seed}")


def rows(out: Path) -> list[Row]:
    """The recorded tasks with both methods, over the seeds that both have."""
    found = []
    for task in TASKS:
        kept = load(out / f"{_folder(task)}.jsonl")
        runs = {method: {one.seed: one.summary for one in kept.get(method, [])} for method in METHODS}
        seeds = sorted(runs["fp32"].keys() & runs["auto"].keys())
        if not seeds:
            continue
        known = runs["fp32"][seeds[0]].get("final_accuracy") is not None
        measure = "accuracy" if known else "test loss"
        key = f"final_{measure.replace(' ', '_')}"
        values = {method: tuple(float(runs[method][seed][key]) for seed in seeds) for method in METHODS}
        total = {
            (method, way): sum(int(runs[method][seed][f"wire_bytes_{way}"]) for seed in seeds)
            for method in METHODS
            for way in ("up", "down")
        }
        float32 = total["fp32", "up"] * 2  # plain FedAvg sends the model both ways
        found.append(
            Row(
                task,
                kept["fp32"][0].dimension,
                measure,
                values["fp32"],
                values["auto"],
                total["fp32", "up"] / total["auto", "up"],
                float32 / (total["auto", "up"] + total["auto", "down"]),
            )
        )
    return found


def table(found: Sequence[Row]) -> str:
    """For docs/theory.md, as Markdown."""
    lines = [
        "| task | d | measure | float32 | auto | behind, in deviations | seeds | bytes up | both ways |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in found:
        digits = 2 if row.measure == "accuracy" else 3
        scale = 100 if row.measure == "accuracy" else 1
        cells = [
            f"{scale * fmean(values):.{digits}f}"
            + (f" ± {scale * stdev(values):.{digits}f}" if len(values) > 1 else "")
            for values in (row.float32, row.auto)
        ]
        behind = "—" if math.isnan(row.deviations) else f"{row.deviations:.1f}"
        lines.append(
            f"| {row.task} | {row.dimension:,} | {row.measure} | {cells[0]} | {cells[1]} | {behind} | "
            f"{len(row.float32)} | 1/{row.up:.0f} | 1/{row.both:.0f} |"
        )
    return "\n".join(lines)


def _folder(task: str) -> str:
    return task.replace(", ", "-").replace(" ", "-")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(_folder(task) for task in TASKS), help="separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--table", action="store_true", help="only print the table of what is recorded")
    options = parser.parse_args(arguments)
    names = {_folder(task): task for task in TASKS}
    wanted = options.tasks.split(",")
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"no task {unknown[0]!r}; there are {', '.join(names)}.")
    if not options.table:
        for seed in range(options.seeds):
            for name in wanted:
                for method in METHODS:
                    keep(job(names[name], method, seed, options.work), method, options.out / f"{name}.jsonl")
    print(table(rows(options.out)))


if __name__ == "__main__":
    main()
