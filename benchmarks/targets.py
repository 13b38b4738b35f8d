"""The codec's figures with their targets, as a record of several runs.

Noise only slows down, so the best run counts. A ratio to copy or to one thread can err both ways: its median counts.

python benchmarks/targets.py [--out evidence/records/benchmarks/targets.json]
"""

from __future__ import annotations

from dataclasses import asdict, replace
from statistics import median

from common import options, record
from target_figures import Figure, figures

RUNS = 5
RATIOS = ("of copy", "times as fast")


def together(runs: tuple[Figure, ...]) -> Figure:
    if runs[0].unit in RATIOS:
        return replace(runs[0], measured=median(run.measured for run in runs))
    return max(runs, key=lambda run: run.share)


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    found = [together(runs) for runs in zip(*(list(figures()) for _ in range(RUNS)), strict=True)]
    print(*found, sep="\n")
    record(arguments.out, {"runs": RUNS, "rows": [{**asdict(row), "share": row.share} for row in found]}, quiet=True)
