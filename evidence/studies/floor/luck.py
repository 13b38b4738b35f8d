"""How much of "reached it" is luck: float32 again, with other mini-batches, against its own target.

    python -m evidence.studies.floor --luck

Partition, first weights, and the clients of each round stay as they are. Where float32 itself misses its own target
with other mini-batches, a miss says little about a method, and neither does a hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from evidence.studies.floor import records, tables
from evidence.studies.floor.methods import FLOAT32, METHODS, OURS, Setting
from evidence.studies.floor.tasks import TASKS

RECORDS = Path("evidence") / "records" / "luck"
AGAIN = "float32, other batches"
TIMES = 3


def setting(batches: int) -> Setting:
    return Setting(f"batches {batches}", rival=METHODS[FLOAT32][0].rival, batches=batches)


def run(names: Sequence[str], seeds: Sequence[int], floor: Path, folder: Path) -> None:
    """Carry out what is missing."""
    for seed in seeds:
        for name in names:
            for batches in range(1, TIMES + 1):
                records.run_missing(TASKS[name], AGAIN, setting(batches), seed, folder, floor)


def table(floor: Path = records.RECORDS, folder: Path = RECORDS) -> list[list[str]]:
    """Each task: how often float32 reached it again, in how many times the rounds, and how often ours reached it."""
    grid = [["task", "float32 again", "rounds, times float32's", "ours"]]
    for task, about in TASKS.items():
        first = {one.seed: one for one in records.load(task, floor) if one.method == FLOAT32}
        ours = next((row.up for row in tables.rows(task, floor) if row.method == OURS), None)
        again = [one for one in records.load(task, folder) if one.method == AGAIN]
        if not again or ours is None:
            continue
        ratios = []
        for one in again:
            target = first[one.seed].target(about.rounds)
            now, before = (run.spent(target, "round") for run in (one, first[one.seed]))
            if now is not None and before is not None:
                ratios.append(now / before)
        row = [f"{len(ratios)} of {len(again)}", f"{fmean(ratios):.2f}" if ratios else "—"]
        grid.append([about.title, *row, f"{len(ours.known)} of {len(ours.values)}"])
    return grid
