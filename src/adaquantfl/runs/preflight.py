"""What can be said against a run before PyTorch is loaded: a mistyped command is answered at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import checkpoint
from ..errors import CheckpointError, ConfigError
from .config import RESUMABLE, Config, load_config


def check_free(out: Path) -> None:
    """Refuse a folder that holds another run, or a path that cannot be a folder."""
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out} is a file; --out names the folder that a run is written to.")
    if (out / "config.toml").is_file():
        remedy = f"Resume it with: adaquantfl run --resume {out}" if has_checkpoint(out) else "Remove it"
        raise CheckpointError(f"{out} already holds a run. {remedy}, or choose another folder with --out.")


def run_config(out: Path, changes: Mapping[str, Any] | None = None) -> Config:
    """The configuration of the run in a folder, with changes on top."""
    if not (out / "config.toml").is_file():
        raise CheckpointError(f"{out} holds no run (no config.toml). Name the run's folder, the one given with --out.")
    return load_config(out / "config.toml", changes)


def check_resumed(out: Path, changes: Mapping[str, Any]) -> None:
    """Refuse to resume what holds no run, has no checkpoint, or would no longer be the same run."""
    check_changes(changes)
    config = run_config(out, changes)
    if not has_checkpoint(out):
        raise CheckpointError(
            f"{out} has no checkpoint, so there is nothing to resume: the run stopped before its first one "
            f"(checkpoint_every = {config.checkpoint_every}). Remove the folder and start the run again."
        )


def check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse what would change rounds that are done."""
    if fixed := sorted(set(changes) - RESUMABLE):
        raise ConfigError(
            f"--set {fixed[0]} would change rounds that are done. When resuming, only "
            f"{', '.join(sorted(RESUMABLE))} can be set; start a new run for the rest."
        )


def has_checkpoint(out: Path) -> bool:
    """Whether a run has something to resume from."""
    return (out / "checkpoint" / checkpoint.FILE).is_file()
