"""The run directory: config.toml, history.jsonl (one line per round), checkpoint/, model, summary.json, an own task."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import tomli_w

from .. import checkpoint
from ..errors import CheckpointError
from ..training.own_files import as_written, named, without_folder
from . import model_file
from .config import RESUMABLE, Config
from .history import read_history, read_summary
from .preflight import check_free, run_config

if TYPE_CHECKING:
    from torch import Tensor


class RunDirectory:
    """One run's files. Held by one process at a time; the lock goes with the process, however it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._history: IO[str] | None = None
        self._lock: IO[str] | None = None

    @property
    def is_run(self) -> bool:
        return (self.path / "config.toml").is_file()

    def create(self, config: Config) -> None:
        """Begin a new run here."""
        check_free(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._acquire()
        for left_over in ("summary.json", model_file.FILE, "checkpoint/state.npz"):  # of a run without a configuration
            (self.path / left_over).unlink(missing_ok=True)
        self._write_config(config)
        for file in named(config.to_dict()).values():  # a copy for the record: what was run, should the file change
            (self.path / file.key).mkdir(exist_ok=True)
            (self.path / file.key / file.path.name).write_bytes(file.read())
        self._history = (self.path / "history.jsonl").open("w", encoding="utf-8")

    def resume(self, changes: Mapping[str, Any]) -> tuple[Config, dict[str, Any] | None]:
        """Read an interrupted run: its configuration, and its state unless it must start over. Nothing is changed."""
        before, config = run_config(self.path), run_config(self.path, changes)
        self._acquire()
        saved = checkpoint.load(self.path / "checkpoint")
        done = int(saved["run"]["round"]) if saved else 0
        if saved:
            self._check_unedited(before, saved["config"])
        if config.rounds < done:
            raise CheckpointError(
                f"{self.path} has {done} rounds already, more than rounds = {config.rounds}. "
                "A run can be made longer, not shorter."
            )
        if config.rounds != before.rounds and config.eta_schedule == "cosine":
            raise CheckpointError(
                "eta_schedule = 'cosine' goes over all rounds: another number of them changes those that are done."
            )
        self._check_history(done)
        return config, saved

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
        path = self.path / "history.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        if len(lines) > rounds:  # later rounds, and a torn last line, are played again
            self._write("history.jsonl", "".join(lines[:rounds]))
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
        return read_history(self.path / "history.jsonl")

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint. The history is on disk before it, so that it never lacks a round of the checkpoint."""
        assert self._history is not None
        os.fsync(self._history.fileno())
        checkpoint.save(state, self.path / "checkpoint")

    def finish(self, summary: Mapping[str, Any], model: Mapping[str, Tensor]) -> None:
        """Write the model and then the summary: the run is complete."""
        model_file.write(model, self.path / model_file.FILE)
        self._write("summary.json", json.dumps(_plain(summary), indent=2) + "\n")

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run."""
        return read_summary(self.path / "summary.json")

    def close(self) -> None:
        for file in (self._history, self._lock):
            if file is not None:
                file.close()
        self._history = self._lock = None

    def _acquire(self) -> None:
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            self._lock = None
            raise CheckpointError(
                f"Another process is working on {self.path}. Wait for it, or stop it first."
            ) from None

    def _check_history(self, rounds: int) -> None:
        path = self.path / "history.jsonl"
        there = len(read_history(path)) if path.exists() else 0
        if there < rounds:
            raise CheckpointError(
                f"{path} has {there} rounds, but the checkpoint is at round {rounds}: lines were removed. "
                "Put the history back, or remove the folder and run again."
            )

    def _write_config(self, config: Config) -> None:
        self._write("config.toml", tomli_w.dumps(as_written(config.to_dict(), self.path)))

    def _write(self, name: str, text: str) -> None:
        temporary = self.path / f"{name}.tmp"
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path / name)


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
