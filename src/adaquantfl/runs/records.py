"""Reading run directories back: one `RunRecord` a run, the input of every table, figure and report.

Nothing here writes or trains. A run that was killed, or is still going, is read as far as it got.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..training import own_files
from ..training.methods import KINDS
from .columns import COLUMNS
from .config import Config
from .labels import fixed_bits
from .labels import label as label_of

CONFIG, HISTORY, SUMMARY = "config.toml", "history.jsonl", "summary.json"
DEPTH = 2  # of the folders that are searched for runs: OUT/METHOD/SEED

Floats = NDArray[np.float64]

# Settings that say which run of an experiment this is, or how fast it goes, but not what is being compared.
_NOT_COMPARED = frozenset({"seed", "workers", "checkpoint_every", "tracking"})


@dataclass(frozen=True)
class RunRecord:
    """One run directory in memory. `summary` is None while the run is unfinished."""

    path: Path
    config: dict[str, Any]
    history: list[dict[str, Any]]
    summary: dict[str, Any] | None

    def __repr__(self) -> str:
        """One line: the method, the seed, how far it is and where.

        >>> RunRecord(Path("runs/mine"), {"rule": {"name": "4bit"}}, [], None)
        RunRecord(4-bit, seed 0, round 0 (unfinished), runs/mine)
        """
        far = f"round {self.rounds}" + ("" if self.finished else " (unfinished)")
        return f"RunRecord({self.label}, seed {self.seed}, {far}, {self.path})"

    @property
    def method(self) -> str:
        """The name of the rule."""
        return str(self.config["rule"]["name"])

    @property
    def seed(self) -> int:
        return int(self.config.get("seed", 0))

    @property
    def label(self) -> str:
        """The method as a reader knows it, the same in every file and figure: "AdaQuantFL", "4-bit + eden (linf)".

        It depends on this run alone. Whatever differs from the default of the rule, the quantizer or the server step is
        part of it: "AdaQuantFL (nearest)", "AdaQuantFL (s0 4)".
        """
        return label_of(self.config)

    def setting(self, key: str) -> Any:
        """A key of its configuration; a run of an earlier version has the default of a key that was added later."""
        table, dot, inner = key.partition(".")
        return self.config.get(table, {}).get(inner) if dot else self.config.get(key, getattr(Config, key, "unset"))

    def seen_from(self, home: Path) -> str:
        """Its folder relative to `home`: that holds on another machine too, and tells nobody about this one."""
        return os.path.relpath(self.path, home)

    @property
    def experiment(self) -> str:
        """What was trained on what."""
        own = str(self.config.get("task", ""))
        return own or f"{self.config.get('model', 'model')} on {self.config.get('dataset', 'data')}"

    @property
    def finished(self) -> bool:
        return self.summary is not None

    def series(self, key: str, x: str = "wire_bytes_up") -> tuple[Floats, Floats]:
        """`key` against `x` over the rounds that measured it, from 0 on where the first value is known."""
        start = (self.summary or {}).get(COLUMNS[key].initial) if key in COLUMNS else None
        points = [] if start is None else [(0.0, float(start))]
        points += [(float(line[x]), float(line[key])) for line in self._measured(key) if line.get(x) is not None]
        table = np.array(points, dtype=np.float64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    @property
    def rounds(self) -> int:
        return int(self.history[-1]["round"]) if self.history else 0

    def reached(self, target: float, key: str = "loss") -> dict[str, Any] | None:
        """The first round's line that measured `key` at or below `target`."""
        return next((line for line in self._measured(key) if line[key] <= target), None)

    def crossing(self, target: float, measure: str, key: str = "loss") -> tuple[float, float, float] | None:
        """Return `measure` where `key` reached `target`: at the last evaluation before, interpolated, and after.

        In between, the logarithm of `key` is taken to fall evenly. None where `target` was not reached.
        """
        before, above = 0.0, float((self.summary or {}).get(COLUMNS[key].initial) or math.inf)
        for line in self._measured(key):
            value, here = float(line[key]), float(line[measure])
            if value <= target:
                known = math.isfinite(above) and above > target > 0 and value > 0
                share = math.log(above / target) / math.log(above / value) if known else 1.0
                return before, before + share * (here - before), here
            before, above = here, value
        return None

    def lowest(self, key: str = "loss") -> float | None:
        """The smallest finite value of `key` after any round, or None where there is none."""
        return min((float(line[key]) for line in self._measured(key) if np.isfinite(line[key])), default=None)

    def final(self, key: str) -> float | None:
        """The last measured value of `key`, or None where it was never measured."""
        measured = self._measured(key)
        return measured[-1][key] if measured else None

    def _measured(self, key: str) -> list[dict[str, Any]]:
        return [line for line in self.history if line.get(key) is not None]


def load_run(directory: Path | str) -> RunRecord:
    """Read one run directory, or raise DataError with what is missing or damaged."""
    path = Path(directory)
    for name in (CONFIG, HISTORY):
        if not (path / name).is_file():
            raise DataError(
                f"{path} is not a run directory: it has no {name}. Give a directory that `adaquantfl run` "
                "or `adaquantfl compare` wrote, after its first round has finished."
            )
    try:
        config = tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path / CONFIG} is not valid TOML ({error}); restore it or repeat the run.") from error
    for key in KINDS:
        if "name" in config.get(key, {}):
            config[key] = {**config[key], "name": own_files.without_folder(str(config[key]["name"]))}
    if "name" not in config.get("rule", {}):
        raise DataError(f'{path / CONFIG} names no rule; expected a table [rule] with a name, such as "adaquant".')
    if "task" in config:
        config["task"] = own_files.without_folder(str(config["task"]))
    return RunRecord(path, config, read_history(path / HISTORY), read_summary(path / SUMMARY))


def find_runs(paths: Iterable[Path | str], skipped: Callable[[str], None] | None = None) -> list[RunRecord]:
    """Every run in `paths`, each a run directory or a folder of them, without repeats: AdaQuantFL first.

    Folders are searched two levels deep, as `adaquantfl compare` writes them. skipped: is called with the reason where
    a run cannot be read and is left out. Without it such a run is an error. It is an error too where no run remains.
    """
    found: dict[Path, RunRecord] = {}
    faults: list[DataError] = []
    for path in map(Path, paths):
        if not path.is_dir():
            raise DataError(f"{path} is not a directory; expected a run or a comparison directory.")
        directories = _run_directories(path)
        if not directories:
            raise DataError(
                f"No run was found in {path} or in its folders, {DEPTH} levels deep. A run directory holds {CONFIG} "
                f"and {HISTORY}; make one with `adaquantfl run` or `adaquantfl compare`."
            )
        for directory in directories:
            if directory.resolve() in found:
                continue
            try:
                found[directory.resolve()] = load_run(directory)
            except DataError as error:
                if skipped is None:
                    raise
                faults.append(error)
                skipped(f"{directory} is left out: {error}")
    if faults and not found:
        raise faults[0]
    return sorted(found.values(), key=_order)


def group_runs(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs that differ in their seed alone, by label; other settings that differ are spelled out in it."""
    by_label: dict[str, list[RunRecord]] = {}
    for run in sorted(runs, key=_order):
        by_label.setdefault(run.label, []).append(run)
    groups: dict[str, list[RunRecord]] = {}
    for label, same in by_label.items():
        keys = differing_settings(same)
        for run in same:
            details = "".join(f", {key} {run.setting(key)}" for key in keys)
            groups.setdefault(label + details, []).append(run)
    return groups


def check_one_task(runs: Sequence[RunRecord]) -> None:
    """DataError where the runs were trained on different tasks: their losses cannot be set against each other."""
    tasks: dict[str, list[str]] = {}
    for run in runs:
        tasks.setdefault(run.experiment, []).append(str(run.path))
    if len(tasks) > 1:
        names = "; ".join(
            f"{task} ({', '.join(folders[:3])}{', ...' * (len(folders) > 3)})" for task, folders in tasks.items()
        )
        raise DataError(
            f"These runs are of {len(tasks)} different tasks, which no table can compare: {names}. Report each task "
            "by itself."
        )


def measure_of_test(runs: Sequence[RunRecord]) -> str | None:
    """What was measured on the test set: "test_accuracy", or "test_loss" of tasks without one; None: nothing."""
    return next(
        (key for key in ("test_accuracy", "test_loss") if any(run.final(key) is not None for run in runs)), None
    )


def differing_settings(runs: Sequence[RunRecord]) -> list[str]:
    """The settings that are not the same in all runs, apart from the method and the seed."""
    keys = {key for run in runs for key in run.config} - _NOT_COMPARED - {*KINDS}
    for kind in KINDS:
        tables = [run.config.get(kind, {}) for run in runs]
        if len({table.get("name") for table in tables}) == 1:  # settings of different methods are not comparable
            keys |= {f"{kind}.{name}" for table in tables for name in table}
        elif kind == "downlink":  # labels have the names of the others
            keys.add("downlink.name")
    return [key for key in sorted(keys) if len({repr(run.setting(key)) for run in runs}) > 1]


def _order(run: RunRecord) -> tuple[int, str, int, str]:
    rank = {"adaquant": -1, "fp32": 1000}.get(run.method, fixed_bits(run.method) or 999)
    return rank, run.label, run.seed, str(run.path)


def _run_directories(root: Path, depth: int = DEPTH) -> list[Path]:
    """The run directories in a folder; a run's own folders (its checkpoint) hold no other run."""
    if (root / CONFIG).is_file() and (root / HISTORY).is_file():
        return [root]
    below = sorted(path for path in root.iterdir() if path.is_dir()) if depth else []
    return [run for folder in below for run in _run_directories(folder, depth - 1)]


def read_history(path: Path, rounds: int | None = None) -> list[dict[str, Any]]:
    """The lines of a history, one per finished round. rounds: read only this many; later damage does not matter."""
    # A process killed while writing leaves a last line without its line feed; that round did not finish.
    # The same damage anywhere else is not explained by a kill, so it is an error.
    *complete, rest = path.read_bytes().split(b"\n") if path.exists() else (b"",)
    history: list[dict[str, Any]] = []
    for number, raw in enumerate([*complete, rest], start=1):
        if rounds is not None and len(history) == rounds:
            break
        last = number > len(complete)
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
            if not (isinstance(line, dict) and all(type(line.get(key)) is int for key in ("round", "wire_bytes_up"))):
                raise ValueError("it is not an object with round and wire_bytes_up")
        except (ValueError, RecursionError) as error:  # covers damaged UTF-8 and damaged JSON
            if last:
                break
            raise DataError(
                f"Line {number} of {path} is damaged ({error}); a line must be one finished round as JSON. "
                "Put it back from a copy, or repeat the run."
            ) from error
        if history and line["round"] <= history[-1]["round"]:
            raise DataError(
                f"Line {number} of {path} is round {line['round']} after round {history[-1]['round']}, but "
                "rounds must increase. Two processes may have written here: repeat the run elsewhere."
            )
        history.append(line)
    return history


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary of a finished run; None where there is none yet."""
    if not path.is_file():
        return None
    try:
        summary = json.loads(path.read_bytes())
        if not isinstance(summary, dict):
            raise ValueError("it is not an object")
        return summary
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}). Delete it: the run then counts as unfinished.") from error
