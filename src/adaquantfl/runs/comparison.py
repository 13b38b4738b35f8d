"""Several methods and seeds on one preset: run what is missing, then tables, figures and a page."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import AdaQuantError, CheckpointError, ConfigError
from ..report import figures, tables
from ..report.export import history_csv
from ..report.page import write_report
from . import loop as runner
from . import records
from .config import Config, load_config
from .directory import RunDirectory
from .loop import Observer
from .methods import Method
from .own_files import short


@dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    config: Config
    out: Path


def plan(preset: str, methods: Sequence[Method], seeds: int, changes: Mapping[str, Any], out: Path) -> list[Job]:
    """The runs of a comparison, checked before the first one starts."""
    if not methods or seeds < 1:
        raise ConfigError("A comparison needs at least one method and one seed.")
    for key in ("method", "seed"):
        if key in changes:
            raise ConfigError(f"--set {key} does not go with compare: use --{key}s.")
    return [
        Job(load_config(preset, {**changes, **method.settings, "seed": seed}), out / method.folder / f"seed-{seed}")
        for seed in range(seeds)
        for method in methods
    ]


def carry_out(jobs: Sequence[Job], observer: Observer | None) -> list[str]:
    """Run what is missing and resume what was interrupted. Returns a sentence for each run that failed."""
    return [failure for job in jobs if (failure := _carry_out_one(job, observer))]


def carry_out_in_parallel(jobs: Sequence[Job], at_once: int, tell: Callable[[str], None]) -> list[str]:
    """The same with several runs at a time, one process each; `tell` hears a line when one ends.

    A run's result does not depend on its workers, and so not on how many run at once.
    """
    failures = []
    alone = [replace(job, config=replace(job.config, workers=1)) for job in jobs]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(at_once, mp_context=context, initializer=_leave_interrupts) as pool:
        waiting = {pool.submit(_carry_out_one, job, None): job for job in alone}
        try:
            for done in as_completed(waiting):
                failure = done.result()
                failures += [failure] if failure else []
                ended = sum(future.done() for future in waiting)
                tell(f"{waiting[done].out}: {'failed' if failure else 'finished'} ({ended} of {len(waiting)})")
        except BaseException:
            pool.shutdown(cancel_futures=True, wait=False)
            for process in list(getattr(pool, "_processes", {}).values()):
                process.terminate()  # as Ctrl-C for that run: its finished rounds are kept
            raise
    return failures


def play(job: Job, observer: Observer | None = None) -> None:
    """Run it, or resume it where it was interrupted; a finished run stays as it is."""
    if RunDirectory(job.out).is_run:
        check_same(job)
        runner.resume(job.out, observer=observer)
    else:
        runner.run(job.config, job.out, observer)


def _carry_out_one(job: Job, observer: Observer | None) -> str | None:
    try:
        play(job, observer)
    except CheckpointError:
        raise
    except AdaQuantError as error:  # one method's divergence does not take the others with it
        return f"{short(job.config.method)}, seed {job.config.seed}, did not finish: {error}"
    return None


def _leave_interrupts() -> None:
    """In a worker: Ctrl-C reaches the whole group, and the parent decides; it ends us with SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def report(folders: Sequence[Path], out: Path) -> str:
    """Figures, tables and the page for all runs in these folders; returns the text for the terminal."""
    runs = records.find_runs(list(folders))
    out.mkdir(parents=True, exist_ok=True)
    figures.draw(runs, out)
    by_measure = [tables.bits_table(runs, measure=measure) for measure in tables.measures(runs)]
    (out / "table.md").write_text("\n\n".join(map(tables.to_markdown, by_measure)) + "\n", encoding="utf-8")
    (out / "table.csv").write_text(tables.to_csv(by_measure), encoding="utf-8")
    (out / "history.csv").write_text(history_csv(runs, out), encoding="utf-8")
    page = write_report(runs, out / "report.html")
    return "\n\n".join([*map(tables.to_text, by_measure), f"{tables.headline(runs)}\nReport: {page}"])


def check_same(job: Job, but_for: Sequence[str] = ()) -> None:
    """A folder from another comparison must not be mistaken for this one's result."""
    there = load_config(job.out / "config.toml").to_dict()
    wanted = job.config.to_dict()
    for key in ("workers", "checkpoint_every", "tracking", *but_for):
        there.pop(key), wanted.pop(key)
    different = [key for key in (*wanted, *there) if there.get(key) != wanted.get(key)]
    if different:
        key = different[0]
        raise CheckpointError(
            f"{job.out} holds a run with {key} = {there.get(key)!r}, but this one has {key} = "
            f"{wanted.get(key)!r}. Choose another folder, or remove that one."
        )
