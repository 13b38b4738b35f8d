"""The run directory: config.toml, history.jsonl (one line per round), checkpoint/, model, summary.json, an own task."""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .. import checkpoint, durable
from ..engines.kept import Kept
from ..errors import CheckpointError, ConfigError
from ..training.own_files import as_written, named, without_folder
from . import model_file
from .config import RESUMABLE, Config, read_toml, run_config
from .config_checks import OWN
from .records import read_history, read_summary

if TYPE_CHECKING:
    from torch import Tensor


HISTORY = "history.jsonl"


class RunDirectory:
    """One run's files. Held by one process at a time; the lock goes with the process, however it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._history: IO[str] | None = None
        self._lock: IO[str] | None = None

    def create(self, config: Config) -> None:
        """Begin a new run here."""
        check_free(self.path)
        durable.make_folder(self.path)
        self._acquire()
        for left_over in ("summary.json", model_file.FILE, "checkpoint/state.npz"):  # of a run without a configuration
            (self.path / left_over).unlink(missing_ok=True)
        for file in named(config.to_dict()).values():  # a copy for the record: what was run, should the file change
            (self.path / file.key).mkdir(exist_ok=True)
            (self.path / file.key / file.path.name).write_bytes(file.read())
        (self.path / HISTORY).write_bytes(b"")
        self._write_config(config)  # last: a folder with a configuration holds a run that can be resumed
        self._history = (self.path / HISTORY).open("a", encoding="utf-8")

    def resume(self, changes: Mapping[str, Any]) -> tuple[Config, dict[str, Any] | None]:
        """Read an interrupted run: its configuration, and its state unless it must start over. Nothing is changed."""
        before = run_config(self.path)
        self._acquire()
        saved = checkpoint.load(self.path / "checkpoint", Kept(self.path).put)
        config = run_config(self.path, changes)
        done = int(saved["run"]["round"]) if saved else 0
        if saved:
            self._check_unedited(before, saved["config"])
        else:
            self._check_complete()
        if config.rounds < done:
            raise CheckpointError(
                f"{self.path} has {done} rounds already, more than rounds = {config.rounds}. "
                "A run can be made longer, not shorter."
            )
        self._check_history(done)
        return config, saved

    def _check_complete(self) -> None:
        """Refuse a config.toml that was cut short: the defaults would take the place of what is missing."""
        there = read_toml(self.path / "config.toml")
        own = OWN if there.get("task") else ()
        if missing := [key for key in Config().to_dict() if key not in there and key not in own]:
            raise CheckpointError(
                f"{self.path / 'config.toml'} is incomplete: {missing[0]!r} is missing, and a run writes every key. "
                "Put it back from a copy, or start the run again in another folder."
            )

    def _check_unedited(self, config: Config, began: Mapping[str, Any]) -> None:
        """Refuse a config.toml that was edited by hand: the rounds that are done would not be those it describes."""
        for key, value in described(config).items():
            if key not in RESUMABLE and value != began.get(key):
                raise CheckpointError(
                    f"{self.path / 'config.toml'} has {key} = {value!r}, but the rounds so far were played with "
                    f"{key} = {began.get(key)!r}. Put that back, or start a new run with the new value."
                )

    def reopen(self, config: Config, rounds: int) -> None:
        """Resume the run here, after `rounds` rounds: what was said of its end no longer holds."""
        self._write_config(config)
        path = self.path / HISTORY
        kept = b"".join(json.dumps(line).encode() + b"\n" for line in read_history(self.path / HISTORY, rounds))
        if not path.exists() or path.read_bytes() != kept:  # later rounds, and a torn last line, are played again
            durable.write(path, kept)
        for name in ("summary.json", model_file.FILE):
            (self.path / name).unlink(missing_ok=True)
        self._history = path.open("a", encoding="utf-8")

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a round to the history; it is there for other processes at once."""
        assert self._history is not None
        self._history.write(json.dumps(_plain(line)) + "\n")
        self._history.flush()

    def history(self) -> list[dict[str, Any]]:
        """The lines of all rounds so far."""
        return read_history(self.path / HISTORY)

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint. The history is on disk before it, so that it never lacks a round of the checkpoint."""
        assert self._history is not None
        os.fsync(self._history.fileno())
        checkpoint.save(state, self.path / "checkpoint")

    def finish(self, summary: Mapping[str, Any], model: Mapping[str, Tensor]) -> None:
        """Write the model and then the summary: the run is complete."""
        model_file.write(model, self.path / model_file.FILE)
        durable.write(self.path / "summary.json", json.dumps(_plain(summary), indent=2).encode() + b"\n")

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run."""
        return read_summary(self.path / "summary.json")

    def close(self) -> None:
        for file in (self._history, self._lock):
            if file is not None:
                file.close()
        self._history = self._lock = None

    def _acquire(self) -> None:
        """Take the run for this process. The kernel frees the lock of a process that is gone."""
        self._lock = (self.path / ".lock").open("a+", encoding="utf-8")  # what the other one wrote is not cut off
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            other = self._lock.read().strip()
            self._lock.close()
            self._lock = None
            raise CheckpointError(
                f"Another process{other and f' ({other})'} is working on {self.path}. Wait for it, or stop it first."
            ) from None
        self._lock.truncate(0)
        self._lock.write(f"pid {os.getpid()} on {platform.node()}")
        self._lock.flush()

    def _check_history(self, rounds: int) -> None:
        if (there := len(read_history(self.path / HISTORY, rounds))) < rounds:
            raise CheckpointError(
                f"{self.path / HISTORY} has {there} rounds, but the checkpoint is at round {rounds}: lines were "
                "removed. Put the history back, or remove the folder and run again."
            )

    def _write_config(self, config: Config) -> None:
        import tomli_w  # of the extra that trains

        text = tomli_w.dumps(as_written(config.to_dict(), self.path))
        durable.write(self.path / "config.toml", text.encode())


def check_free(out: Path) -> None:
    """Refuse a folder that holds another run, or a path that cannot be a folder."""
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out} is a file; --out names the folder that a run is written to.")
    if (out / "config.toml").is_file():
        raise CheckpointError(
            f"{out} already holds a run. Resume it with: adaquantfl run --resume {out}, or choose another folder with "
            "--out."
        )


def check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse what would change rounds that are done."""
    if fixed := sorted(set(changes) - RESUMABLE):
        raise ConfigError(
            f"--set {fixed[0]} would change rounds that are done. When resuming, only "
            f"{', '.join(sorted(RESUMABLE))} can be set; start a new run for the rest."
        )


def described(config: Config) -> dict[str, Any]:
    """The configuration as a checkpoint keeps it: own files by their names, wherever the run's folder is now."""
    values = config.to_dict()
    for key in named(values):
        value = values[key]
        values[key] = {**value, "name": without_folder(value["name"])} if key != "task" else without_folder(value)
    return values


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
