"""Several methods and seeds on one preset: run what is missing, then tables, figures and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import METHODS, Config, load_config
from ..errors import AdaQuantError, CheckpointError, ConfigError
from ..federated.history import RunDirectory
from ..names import unknown
from . import figures, records, runner, tables
from .export import history_csv
from .report import write_report
from .runner import Observer


@dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    config: Config
    out: Path


def plan(preset: str, methods: Sequence[str], seeds: int, changes: Mapping[str, Any], out: Path) -> list[Job]:
    """The runs of a comparison, checked before the first one starts."""
    if not methods or seeds < 1:
        raise ConfigError("A comparison needs at least one method and one seed.")
    for method in methods:
        if method not in METHODS:
            raise ConfigError(unknown("method", method, METHODS))
    for key in ("method", "seed"):
        if key in changes:
            raise ConfigError(f"--set {key} does not go with compare: use --{key}s.")
    return [
        Job(load_config(preset, {**changes, "method": method, "seed": seed}), out / method / f"seed-{seed}")
        for seed in range(seeds)
        for method in dict.fromkeys(methods)
    ]


def carry_out(jobs: Sequence[Job], observer: Observer | None) -> list[str]:
    """Run what is missing and go on with what was interrupted. Returns a sentence for each run that failed."""
    failures = []
    for job in jobs:
        try:
            if RunDirectory(job.out).is_run:
                check_same(job)
                runner.resume(job.out, observer=observer)
            else:
                runner.run(job.config, job.out, observer)
        except CheckpointError:
            raise
        except AdaQuantError as error:  # one method's divergence does not take the others with it
            failures.append(f"{job.config.method}, seed {job.config.seed}, did not finish: {error}")
    return failures


def report(folders: Sequence[Path], out: Path) -> str:
    """Figures, tables and the page for all runs in these folders; returns the text for the terminal."""
    runs = records.find_runs(list(folders))
    out.mkdir(parents=True, exist_ok=True)
    figures.draw(runs, out)
    by_measure = [tables.bits_table(runs, measure=measure) for measure in ("paper_bits", "wire_bytes_up")]
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
            f"{job.out} holds a run with {key} = {there.get(key)!r}, but this comparison has {key} = "
            f"{wanted.get(key)!r}. "
            "Choose another --out, or remove that folder."
        )
