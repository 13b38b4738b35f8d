"""The runs of a comparison: which they are, whether their folders are theirs, and carrying them out.

PyTorch is loaded when the first run starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, ConfigError
from ..training.catalogue import check_task
from ..training.own_files import short
from .config import Config, load_config, run_config
from .directory import described
from .methods import Method

if TYPE_CHECKING:
    from ..engines.launch import Observer


@dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    config: Config
    out: Path

    @property
    def name(self) -> str:
        """The run as a reader knows it."""
        seed = f"seed {self.config.seed}"
        in_comparison = self.out.name == seed.replace(" ", "-")
        return f"{self.out.parent.name if in_comparison else short(self.config.method)} {seed}"


def plan(preset: str, methods: Sequence[Method], seeds: int, changes: Mapping[str, Any], out: Path) -> list[Job]:
    """The runs of a comparison; every configuration is checked."""
    if not methods or seeds < 1:
        raise ConfigError("A comparison needs at least one method and one seed.")
    for key, option in {"rule": "--methods", "seed": "--seeds"}.items():
        if key in changes:
            raise ConfigError(f"--set {key} does not go with compare: use {option}.")
    return [
        Job(load_config(preset, {**changes, **method.settings, "seed": seed}), out / method.folder / f"seed-{seed}")
        for seed in range(seeds)
        for method in methods
    ]


def check(jobs: Sequence[Job]) -> None:
    """Refuse runs whose data are not there, and folders that hold other runs, before the first run starts."""
    for job in jobs:
        check_task(job.config)
        if not (job.out / "config.toml").is_file():
            continue
        there, wanted = described(run_config(job.out)), described(job.config)
        for key in (*wanted, *there):
            if key not in ("workers", "checkpoint_every", "tracking") and there.get(key) != wanted.get(key):
                raise CheckpointError(
                    f"{job.out} holds a run with {key} = {there.get(key)!r}, but this one has {key} = "
                    f"{wanted.get(key)!r}. Choose another folder, or remove that one."
                )


def play(job: Job, observer: Observer | None = None) -> None:
    """Run it, or resume it where it was interrupted; a finished run stays as it is."""
    try:
        from . import loop
    except ModuleNotFoundError as error:
        raise ImportError(f"A run needs {error.name}: pip install 'adaquantfl[train]'") from error
    if (job.out / "config.toml").is_file():
        loop.resume(job.out, observer=observer)
    else:
        loop.run(job.config, job.out, observer)
