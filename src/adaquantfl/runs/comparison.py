"""Several methods and seeds on one preset: run what is missing, one run after another or several at once."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from typing import Any, Protocol

from ..engines.local import LocalEngine
from ..engines.pool import Crew
from ..errors import AdaQuantError, CheckpointError
from . import loop as runner
from .config import Config
from .directory import RunDirectory
from .jobs import Job, check_same
from .loop import Connect, Observer
from .state import RunState


class Spectator(Protocol):
    """An observer of the rounds of all runs, which also hears of each run's beginning and end."""

    def __call__(self, config: Config, state: RunState, line: dict[str, Any] | None) -> None: ...

    def begins(self, job: Job) -> None: ...

    def ended(self, job: Job, failure: str) -> None: ...


def carry_out(jobs: Sequence[Job], spectator: Spectator, at_once: int = 1) -> list[str]:
    """Run what is missing and resume what was interrupted. Returns a sentence for each run that failed.

    at_once: how many runs at a time, one process each. A run's result does not depend on its workers, and so not on
    how many run at once.
    """
    failures = []
    for job, failure in _in_parallel(jobs, at_once) if at_once > 1 else _in_turn(jobs, spectator):
        failures += [failure] if failure else []
        spectator.ended(job, failure)
    return failures


def _in_turn(jobs: Sequence[Job], spectator: Spectator) -> Iterator[tuple[Job, str]]:
    """One after another, with the same worker processes."""
    crew = Crew()
    try:
        for job in jobs:
            spectator.begins(job)
            yield job, _carry_out_one(job, spectator, lambda config: LocalEngine(config, crew))
    finally:
        crew.close()


def _in_parallel(jobs: Sequence[Job], at_once: int) -> Iterator[tuple[Job, str]]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(at_once, mp_context=context, initializer=_leave_interrupts) as pool:
        waiting = {
            pool.submit(_carry_out_one, replace(job, config=replace(job.config, workers=1)), None): job for job in jobs
        }
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True, wait=False)
            for process in list(getattr(pool, "_processes", {}).values()):
                process.terminate()  # as Ctrl-C for that run: its finished rounds are kept
            raise


def play(job: Job, observer: Observer | None = None, connect: Connect | None = None) -> None:
    """Run it, or resume it where it was interrupted; a finished run stays as it is."""
    if RunDirectory(job.out).is_run:
        check_same(job)
        runner.resume(job.out, observer=observer, connect=connect)
    else:
        runner.run(job.config, job.out, observer, connect)


def _carry_out_one(job: Job, observer: Observer | None, connect: Connect | None = None) -> str:
    """Why it failed; empty where it did not."""
    try:
        play(job, observer, connect)
    except CheckpointError:
        raise
    except AdaQuantError as error:  # one method's divergence does not take the others with it
        return f"{job.name} did not finish: {error}"
    return ""


def _leave_interrupts() -> None:
    """In a worker: Ctrl-C reaches the whole group, and the parent decides; it ends us with SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
