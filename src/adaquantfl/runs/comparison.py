"""Several methods and seeds on one preset: run what is missing, one run after another or several at once."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Protocol

from ..engines.local import LocalEngine
from ..engines.pool import Crew
from ..errors import AdaQuantError, CheckpointError
from . import loop as runner
from .directory import RunDirectory
from .jobs import Job, check_same
from .loop import Connect, Observer


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
    """Carry out several jobs at a time, in processes that take one job after another."""
    waiting, busy = list(reversed(jobs)), dict[Connection, tuple[BaseProcess, Job, Observer]]()

    def give(worker: Connection, process: BaseProcess) -> None:
        if waiting:
            job = waiting.pop()
            busy[worker] = process, job, spectator.of(job.name)
            worker.send(replace(job, config=replace(job.config, workers=1)))
        else:
            busy.pop(worker, None)
            worker.close()  # it ends

    try:
        for _ in range(min(at_once, len(jobs))):
            give(*_started())
        while busy:
            for worker in wait(list(busy)):
                assert isinstance(worker, Connection)
                process, job, observer = busy[worker]
                try:
                    heard = worker.recv()
                except (EOFError, OSError):
                    del busy[worker]
                    process.join()
                    yield job, f"{job.name} did not finish: its process ended with exit code {process.exitcode}."
                    if waiting:
                        give(*_started())
                    continue
                if isinstance(heard, Exception):
                    raise heard
                if isinstance(heard, str):
                    yield job, heard
                    give(worker, process)
                else:
                    observer(*heard)
    finally:
        for process, _, _ in busy.values():
            process.terminate()  # as Ctrl-C for that run: its finished rounds are kept
        for process, _, _ in busy.values():
            process.join(timeout=30)
            process.kill()


def _started() -> tuple[Connection, BaseProcess]:
    """Start a process for `_in_parallel`, which ignores Ctrl-C, because the parent decides."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    theirs.close()
    return ours, process


def _serve(parent: Connection) -> None:
    """The life of such a process: it sends what observers hear, and at the end of a job why it failed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            job = parent.recv()
            try:
                parent.send(_carry_out_one(job, lambda *heard: parent.send(heard)))
            except Exception as error:  # the parent raises it
                parent.send(error)


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
