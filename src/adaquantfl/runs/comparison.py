"""Several methods and seeds on one preset: run what is missing, one run after another or several at once."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from typing import Any, Protocol

from ..engines.local import LocalEngine
from ..engines.pool import Crew
from ..errors import AdaQuantError, CheckpointError
from . import loop as runner
from .directory import RunDirectory
from .jobs import Job, check_same
from .loop import Connect, Observer

_heard: Any = None  # in a process of `_in_parallel`: the queue to the parent


class Spectator(Protocol):
    """Shows the runs of a comparison: it has an observer for each of them, and hears when one has ended."""

    def of(self, name: str) -> Observer: ...

    def ended(self, job: Job, failure: str) -> None: ...


def carry_out(jobs: Sequence[Job], spectator: Spectator, at_once: int = 1) -> list[str]:
    """Run what is missing and resume what was interrupted. Returns a sentence for each run that failed.

    at_once: how many runs at a time, one process each. A run's result does not depend on its workers, and so not on
    how many run at once.
    """
    failures = []
    for job, failure in (_in_parallel if at_once > 1 else _in_turn)(jobs, spectator, at_once):
        failures += [failure] if failure else []
        spectator.ended(job, failure)
    return failures


def _in_turn(jobs: Sequence[Job], spectator: Spectator, at_once: int) -> Iterator[tuple[Job, str]]:
    """Carry out one job after another, with the same worker processes."""
    crew = Crew()
    try:
        for job in jobs:
            yield job, _carry_out_one(job, spectator.of(job.name), lambda config: LocalEngine(config, crew))
    finally:
        crew.close()


def _in_parallel(jobs: Sequence[Job], spectator: Spectator, at_once: int) -> Iterator[tuple[Job, str]]:
    context = multiprocessing.get_context("spawn")
    heard = context.SimpleQueue()
    observers = [spectator.of(job.name) for job in jobs]
    with ProcessPoolExecutor(min(at_once, len(jobs)), context, _prepare, (heard,)) as pool:
        waiting = {
            pool.submit(_told, place, replace(job, config=replace(job.config, workers=1))): job
            for place, job in enumerate(jobs)
        }
        try:
            while waiting:
                done, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                while not heard.empty():
                    place, config, state, line = heard.get()
                    observers[place](config, state, line)
                for one in done:
                    yield waiting.pop(one), one.result()
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


def _told(place: int, job: Job) -> str:
    """In a process of `_in_parallel`: carry out one job, and tell the parent of each round."""
    return _carry_out_one(job, lambda config, state, line: _heard.put((place, config, state, line)))


def _prepare(heard: SimpleQueue[Any]) -> None:
    """Start a process of `_in_parallel`. Ctrl-C reaches the whole group; the parent ends us with SIGTERM."""
    global _heard
    _heard = heard
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
