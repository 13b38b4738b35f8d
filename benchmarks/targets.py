"""The figures of `adaquantfl bench` with their targets, as a record.

python benchmarks/targets.py [--out results/benchmarks/targets.json]
"""

from __future__ import annotations

from dataclasses import asdict

from adaquantfl.cli.targets import figures
from common import options, record

if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = []
    for figure in figures():
        print(figure, flush=True)
        rows.append({**asdict(figure), "share": figure.share})
    record(arguments.out, {"rows": rows}, quiet=True)
