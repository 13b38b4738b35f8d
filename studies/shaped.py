"""Whether factors of rows and columns pay in training: `shaped` beside `mixed` and `centroid`, bytes to a loss.

    python -m studies.shaped                                 run what is missing, then print the table
    python -m studies.shaped --tasks mlp-8-clients --seeds 3
    python -m studies.shaped --table                         only print the table of what is recorded

Tasks, losses to reach and their smoothing are those of `studies.ablation`. Its records have the float32 runs, whose
losses are to be reached, and most of the runs with `centroid`. The CNN has 30 rounds here, for the first of the losses.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from studies import ablation, reproduce
from studies.ablation import SHARES, TASKS, Curve, folder, mean

RECORDS, WORK = Path("results") / "shaped", Path("runs") / "shaped"
QUANTIZERS = ("centroid", "mixed", "shaped")
MLP, CNN = "MLP, 8 clients", "CNN, 8 clients"
RULES = {MLP: ("s = 1", "s = 4", "cost-aware"), CNN: ("s = 0.25", "s = 2")}


def name_of(rule: str, quantizer: str) -> str:
    """A method as `studies.ablation` calls it.

    >>> name_of("s = 4", "mixed"), name_of("cost-aware", "mixed")
    ('s = 4, mixed, balanced', 'cost-aware, mixed')
    """
    return f"{rule}, {quantizer}" + (", balanced" if rule.startswith("s = ") else "")


def job(task: str, rule: str, quantizer: str, seed: int, work: Path) -> Job:
    """One run."""
    source, settings = TASKS[task]
    chosen: dict[str, Any] = {"method": "cost-aware"}
    if rule != "cost-aware":
        chosen = {"method": "constant", "rule_s0": float(rule.removeprefix("s = ")), "scope": "balanced"}
    changes = {**settings, **chosen, "quantizer": quantizer, "seed": seed, "evaluate_every": 2, "workers": 1}
    changes |= {"rounds": 30} if task == CNN else {}
    return Job(load_config(source, changes), work / folder(task) / folder(name_of(rule, quantizer)) / f"seed-{seed}")


def load(records: Sequence[Path], task: str, rule: str, quantizer: str) -> dict[int, Curve]:
    """The recorded runs by seed."""
    paths = [path for one in records for path in (one / folder(task) / folder(name_of(rule, quantizer))).glob("seed-*")]
    return {int(path.name.removeprefix("seed-")): ablation.read(path) for path in sorted(paths)}


def rows(records: Sequence[Path], task: str) -> list[list[str]]:
    """For each rule and loss, kB with each quantizer and the number of seeds, of those that all quantizers have.

    records: the last of them has the runs of float32.
    """
    float32, table = ablation.load(records[-1], task), []
    for rule in RULES[task]:
        runs = {one: load(records, task, rule, one) for one in QUANTIZERS}
        known = {one: group for one, group in runs.items() if group}
        seeds = set.intersection(*map(set, known.values())) if known else set()
        for share in SHARES[:1] if task == CNN else SHARES:
            goal = {seed: loss for seed, loss in ablation.level(float32, share).items() if seed in seeds}
            if goal and {"mixed", "shaped"} <= set(known):
                cells = [_cell(mean(known[one], goal)) if one in known else "not run" for one in QUANTIZERS]
                table.append([rule, f"{share:g}", *cells, str(len(goal))])
    return table


def _cell(spent: float | None) -> str:
    return f"{spent / 1000:,.0f}" if spent else "not all"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(map(folder, RULES)), help="separated by commas")
    parser.add_argument("--rules", default="", help="separated by commas; all by default")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--table", action="store_true", help="only print the table of what is recorded")
    options = parser.parse_args(arguments)
    everything, tasks = (options.records, ablation.RECORDS), {folder(task): task for task in RULES}
    if unknown := [name for name in options.tasks.split(",") if name not in tasks]:
        parser.error(f"no {unknown[0]!r}; there are {', '.join(tasks)}.")
    for seed in range(0 if options.table else options.seeds):
        for task in map(tasks.__getitem__, options.tasks.split(",")):
            for rule in options.rules.split(",") if options.rules else RULES[task]:
                for quantizer in QUANTIZERS:
                    if seed not in load(everything, task, rule, quantizer):
                        one = job(task, rule, quantizer, seed, options.work)
                        reproduce.carry_out_to_any_end(one, options.records, options.work)
    print(f"{'task':16}{'rule':12}{'share':>6}", *(f"{name:>10}" for name in (*QUANTIZERS, "seeds")))
    for task in RULES:
        for rule, share, *cells in rows(everything, task):
            print(f"{task:16}{rule:12}{share:>6}", *(f"{cell:>10}" for cell in cells))


if __name__ == "__main__":
    main()
