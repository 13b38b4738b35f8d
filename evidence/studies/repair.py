"""How much `repair`, the one constant of cost-aware, matters: two orders of magnitude, on tasks that are not judged.

    python -m evidence.studies.repair                    run what is missing, then print the table
    python -m evidence.studies.repair --table            only print the table of what is recorded

Logistic regression and the MLP, 8 of 8 clients and 5 of 100. The partitions (Dirichlet 1.0 and 0.1) and the seeds are
none of `studies.floor`. Targets and bytes are counted as there: up to within 0.5 points of float32's final accuracy.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from evidence.studies.floor.methods import OURS, Setting
from evidence.studies.floor.records import load, run_missing, targets
from evidence.studies.floor.tasks import LOGISTIC, TASKS, FloorTask

RECORDS = Path("evidence") / "records" / "repair"
VALUES = (4, 10, 40, 100, 400)
SEEDS = (100, 101)
PARTITIONS = {"dirichlet(1.0)": "mild", "dirichlet(0.1)": "strong"}


def tasks() -> list[FloorTask]:
    """Those of `studies.floor` with other partitions."""
    found = []
    for partition, name in PARTITIONS.items():
        for base in ("logistic-iid", "mlp-iid", "logistic-iid-5-of-100", "mlp-iid-5-of-100"):
            of = replace(TASKS[base], name=base.replace("iid", name), title=TASKS[base].title.replace("iid", partition))
            if base.startswith("logistic"):
                found.append(replace(of, source=f"{LOGISTIC}:{name}"))
            else:
                found.append(replace(of, settings={**of.settings, "partition": partition}))
    return found


def setting(value: float) -> Setting:
    return Setting(f"repair = {value:g}", {"method": "cost-aware", "quantizer": "centroid", "repair": value})


def costs(task: FloorTask, records: Path) -> dict[tuple[str, int], float | None]:
    """Bytes up to the target by setting and seed; None where a run did not get there."""
    goals = targets(task, records)
    return {
        (one.setting, one.seed): one.spent(goals[one.seed], "up")
        for one in load(task.name, records)
        if one.method == OURS and one.seed in goals
    }


def table(records: Path, values: Sequence[float] = VALUES) -> list[list[str]]:
    """Of each value: how often it got there, and its bytes as multiples of the usual value's, where both did."""
    from adaquantfl.rules.cost_aware import CostAware

    usual = setting(CostAware().repair).label
    grid = [["repair", "got there", "bytes up, times those of the default", "least", "most"]]
    for value in values:
        label, ratios, there, runs = setting(value).label, [], 0, 0
        for task in tasks():
            found = costs(task, records)
            for seed in SEEDS:
                if (label, seed) not in found:
                    continue
                cost, reference = found[label, seed], found.get((usual, seed))
                runs, there = runs + 1, there + (cost is not None)
                if cost is not None and reference is not None:
                    ratios.append(cost / reference)
        if runs:
            mean = f"{math.exp(fmean(map(math.log, ratios))):.2f}" if ratios else "—"
            ends = [f"{end(ratios):.2f}" if ratios else "—" for end in (min, max)]
            grid.append([f"{value:g}" + (" (default)" if label == usual else ""), f"{there} of {runs}", mean, *ends])
    return grid


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers separated by commas, got {text!r}") from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=_numbers, default=VALUES, help="separated by commas (default: %(default)s)")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--table", action="store_true", help="only print the table of what is recorded")
    options = parser.parse_args(arguments)
    if not options.table:
        for seed in SEEDS:
            for value in options.values:
                for task in tasks():
                    run_missing(task, OURS, setting(value), seed, options.records)
    for row in table(options.records, options.values):
        print(*(f"{cell:>20}" for cell in row))


if __name__ == "__main__":
    main()
