"""What `adaquantfl reproduce` does: choose a study by name, and carry out its runs into its records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from adaquantfl.errors import EngineError
from adaquantfl.runs.loop import Observer

from . import reproduce, rivals, sensitivity


def run(
    panel: str,
    methods: Sequence[str],
    changes: Mapping[str, Any],
    records: Path | None,
    work: Path | None,
    shown: Callable[[], AbstractContextManager[Observer]],
) -> int:
    """Carry out a panel of the paper, or a study of ours. Returns 1 if a run did not finish."""
    study = {sensitivity.NAME: sensitivity, rivals.NAME: rivals}.get(panel, reproduce)
    work, records = work or study.WORK, records or study.RECORDS
    if study is reproduce:
        jobs = reproduce.panel_jobs(panel, methods, changes, work)
    else:
        jobs = study.jobs(methods, changes, work)
    failed = False
    for job in jobs:
        name = job.out.relative_to(work)
        try:
            with shown() as observer:
                record = reproduce.carry_out(job, records, work, observer)
        except EngineError as error:  # a training that diverges is a result, and does not take the others with it
            failed = True
            reproduce.record_failure(records / name, job.out, str(error))
            print(f"adaquantfl: {name} did not finish: {error}", file=sys.stderr, flush=True)
            continue
        print(f"{name}: recorded in {record}" if record else f"{name}: has a record already", flush=True)
    return 1 if failed else 0
