"""What can be said against a run before PyTorch is loaded: a mistyped command is answered at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from .. import checkpoint
from ..errors import CheckpointError, ConfigError
from .config import RESUMABLE, Config, load_config
from .config_checks import OWN
from .presets import read_toml


def check_free(out: Path) -> None:
    """Refuse a folder that holds another run, or a path that cannot be a folder."""
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out} is a file; --out names the folder that a run is written to.")
    if (out / "config.toml").is_file():
        raise CheckpointError(
            f"{out} already holds a run. Resume it with: adaquantfl run --resume {out}, or choose another folder with "
            "--out."
        )


def run_config(out: Path, changes: Mapping[str, Any] | None = None) -> Config:
    """The configuration of the run in a folder, with changes on top."""
    if not (out / "config.toml").is_file():
        raise CheckpointError(f"{out} holds no run (no config.toml). Name the run's folder, the one given with --out.")
    return load_config(out / "config.toml", changes)


def check_resumed(out: Path, changes: Mapping[str, Any]) -> None:
    """Refuse to resume what holds no run, or would no longer be the same run."""
    check_changes(changes)
    run_config(out, changes)
    if not has_checkpoint(out):  # the run starts again
        check_complete(out)


def check_complete(out: Path, keys: Collection[str] | None = None) -> None:
    """Refuse a config.toml that was cut short: the defaults would take the place of what is missing.

    keys: those that the checkpoint knows, where there is one; an earlier version may have had fewer.
    """
    there = read_toml(out / "config.toml")
    missing = [key for key in (Config().to_dict() if keys is None else keys) if key not in there]
    if there.get("task"):
        missing = [key for key in missing if key not in OWN]
    if missing:
        raise CheckpointError(
            f"{out / 'config.toml'} is incomplete: {missing[0]!r} is missing, and a run writes every key. "
            "Put it back from a copy, or start the run again in another folder."
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
