"""The runs of a comparison: which they are, and whether their folders are theirs. Nothing here loads PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, ConfigError
from ..training.own_files import short
from ..training.preflight import check_task
from .config import Config, load_config
from .methods import Method


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
        if (job.out / "config.toml").is_file():
            check_same(job)


def check_same(job: Job) -> None:
    """A folder from another comparison must not be mistaken for this one's result."""
    there = load_config(job.out / "config.toml").to_dict()
    wanted = job.config.to_dict()
    for key in (*wanted, *there):
        if key not in ("workers", "checkpoint_every", "tracking") and there.get(key) != wanted.get(key):
            raise CheckpointError(
                f"{job.out} holds a run with {key} = {there.get(key)!r}, but this one has {key} = "
                f"{wanted.get(key)!r}. Choose another folder, or remove that one."
            )
