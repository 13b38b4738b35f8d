"""Trials of cost-aware on tasks that are not judged elsewhere: its constants over two orders of magnitude.

    python -m studies.rule_trials                                   run what is missing, then print the table
    python -m studies.rule_trials --tasks mlp-1.0,logistic-1.0 --seeds 100
    python -m studies.rule_trials --table                           only print the table

Partitions are Dirichlet 1.0 and 0.1, and seeds begin at 100; the tasks that are judged have neither. As in
`studies.floor`, a method has float32's rounds and 20 % more, and bytes up are counted until it is as good as float32.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from studies.floor import records, tables, tasks
from studies.floor.methods import Setting

RECORDS = Path("results") / "rule-trials"
SEEDS = (100, 101)
TASKS = {
    task.name: task
    for clients, some, rounds in ((tasks.ALL, "", (60, 50)), (tasks.SOME, "-5-of-100", (100, 90)))
    for alpha, function in (("1.0", "nearly_equal"), ("0.1", "few_classes"))
    for task in (
        tasks.mlp(f"mlp-{alpha}{some}", f"MLP, Dirichlet {alpha}", f"dirichlet({alpha})", rounds[0], clients),
        tasks.logistic(f"logistic-{alpha}{some}", f"logistic, Dirichlet {alpha}", function, rounds[1], clients),
    )
}
USUAL = "T = 40, s0 = 0.5"
_OURS = {"method": "cost-aware", "quantizer": "centroid"}
_CONSTANT = {"method": "constant", "quantizer": "centroid", "scope": "balanced"}
SETTINGS = (
    Setting(USUAL, _OURS),
    *(Setting(f"T = {repair}", {**_OURS, "repair": repair}) for repair in (4, 20, 80, 400)),
    *(Setting(f"s0 = {s:g}", {**_OURS, "rule_s0": s}) for s in (0.05, 5.0)),
    *(Setting(f"constant s = {s:g}", {**_CONSTANT, "rule_s0": s}) for s in (0.5, 1.0, 2.0)),
)


def table(folder: Path = RECORDS) -> list[list[str]]:
    """Each setting: runs that got to float32's accuracy, bytes next to the usual setting, and the accuracy at the end.

    Bytes are geometric means over the runs where both got there; accuracies are means over all runs that have them.
    """
    runs = {name: {(one.setting, one.seed): one for one in records.load(name, folder)} for name in TASKS}
    grid = [["setting", "got there", "bytes up to it, times T = 40", "bytes of all rounds", "points behind float32"]]
    for setting in SETTINGS:
        spent, all_bytes, behind, there = [], [], [], 0
        for name, found in runs.items():
            rounds = TASKS[name].rounds
            for seed in SEEDS:
                float32, usual, own = (found.get((label, seed)) for label in ("", USUAL, setting.label))
                if float32 is None or usual is None or own is None:
                    continue
                target = float32.target(rounds)
                cost, reference, final = own.spent(target, "up"), usual.spent(target, "up"), own.final(rounds)
                there += cost is not None
                if cost and reference:
                    spent.append(math.log(cost / reference))
                if final is not None:
                    behind.append(100 * (target + records.WITHIN - final))
                    all_bytes.append(math.log(_up(own, rounds) / _up(usual, rounds)))
        if behind:
            cells = [f"{there} of {len(behind)}", *(_mean(logs) for logs in (spent, all_bytes))]
            grid.append([setting.label, *cells, f"{fmean(behind):.2f}"])
    return grid


def _up(run: records.Record, rounds: int) -> float:
    """Bytes after float32's rounds, which all settings have."""
    return float(max(up for round, up in zip(run.round, run.up, strict=True) if round <= rounds))


def _mean(logarithms: list[float]) -> str:
    return tables.number(math.exp(fmean(logarithms))) if logarithms else "—"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--tasks", default=",".join(TASKS), help="separated by commas")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="separated by commas")
    parser.add_argument("--table", action="store_true", help="only print the table of what is recorded")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.tasks.split(",") if name not in TASKS]:
        parser.error(f"no {unknown[0]!r}; there are {', '.join(TASKS)}.")
    if not options.table:
        for seed in map(int, options.seeds.split(",")):
            for setting in SETTINGS:
                for name in options.tasks.split(","):
                    records.run_missing(TASKS[name], setting.keys["method"], setting, seed, options.records)
    for row in table(options.records):
        print(*(f"{cell:>30}" for cell in row))


if __name__ == "__main__":
    main()
