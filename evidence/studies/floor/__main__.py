"""The command: see the package's first lines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from evidence.studies import floor
from evidence.studies.floor import constants, luck, records, tables
from evidence.studies.floor.methods import METHODS, takes_part
from evidence.studies.floor.tasks import TASKS, takes_seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the tables."""
    cheap = [name for name, task in TASKS.items() if takes_seconds(task)]
    parser = argparse.ArgumentParser(
        prog="python -m evidence.studies.floor",
        description=floor.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--trials", action="store_true", help="only try settings, on the task that is not judged")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--constants", action="store_true", help="every constant on the tasks, in records/constants")
    which.add_argument("--luck", action="store_true", help="float32 with other mini-batches, in evidence/records/luck")
    parser.add_argument("--tasks", default=",".join(cheap), help=f"separated by commas; all: {', '.join(TASKS)}")
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by semicolons")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument("--records", type=Path, default=records.RECORDS)
    parser.add_argument("--table", action="store_true", help="only print the tables of what is recorded")
    options = parser.parse_args(arguments)
    names, methods = options.tasks.split(","), options.methods.split(";")
    for given, known in ((names, TASKS), (methods, METHODS)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"no {unknown[0]!r}; there are {', '.join(known)}.")
    try:
        seeds = [int(seed) for seed in options.seeds.split(",")]
    except ValueError:
        parser.error(f"--seeds {options.seeds}: expected whole numbers separated by commas.")
    if options.constants or options.luck:
        study = constants if options.constants else luck
        folder = study.RECORDS if options.records == records.RECORDS else options.records
        if not options.table:
            study.run(names, seeds, options.records, folder)
        for row in study.table(options.records, folder):
            print(*(f"{cell:>36}" if place == 0 else f"{cell:>24}" for place, cell in enumerate(row)))
        return
    if not options.table:
        records.run_trials(options.records)
        if options.trials:
            return
        for seed in seeds:
            for name in names:
                for method in (one for one in methods if takes_part(one, TASKS[name])):
                    setting = records.chosen(method, options.records)
                    assert setting is not None  # all were tried
                    records.run_missing(TASKS[name], method, setting, seed, options.records)
    for name in names:
        for row in tables.details(name, options.records):
            print(f"{name:24}", *(f"{cell:>24}" for cell in row))


if __name__ == "__main__":
    main()
