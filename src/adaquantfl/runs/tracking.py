"""What a run tells an experiment tracker: the scalars of each round. `tracking` in the configuration names which.

A tracker only listens. Where it fails in mid-run, it is left out from there on, with a sentence, and the run continues.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ..errors import ConfigError
from .columns import COLUMNS, flat
from .config import Config

FOLDER = "tensorboard"  # of the event files, in the run's folder

Line = dict[str, Any]


class Tracker(Protocol):
    """Takes the scalars of a round. Another tracker is a class like these and a line in `TRACKERS`."""

    def add(self, step: int, scalars: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's folder. TensorBoard drops what it has there from `first_step` on: it is played again."""

    def __init__(self, config: Config, out: Path, first_step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        (out / FOLDER).mkdir(parents=True, exist_ok=True)
        # A run may resume within a second, and TensorBoard reads the files of a folder in the order of their names.
        suffix = f".{time.time_ns() % 10**9:09d}.adaquantfl"
        self._file = EventsWriter(str(out / FOLDER / "events"), suffix)
        self._write(first_step, session_log={"status": event_pb2.SessionLog.START})

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        values = [{"tag": tag, "simple_value": value} for tag, value in scalars.items()]
        self._write(step, summary={"value": values})

    def close(self) -> None:
        self._file.close()

    def _write(self, step: int, **content: Any) -> None:
        """Write one event; other processes can read it at once."""
        from tensorboardX.proto.event_pb2 import Event

        self._file.write_event(Event(wall_time=time.time(), step=step, **content))
        self._file.flush()


class MLflow:
    """A run of MLflow, on the server that its own settings name (MLFLOW_TRACKING_URI)."""

    def __init__(self, config: Config, out: Path, first_step: int) -> None:
        self._mlflow = _package("mlflow")
        self._mlflow.start_run(run_name=out.name)
        self._mlflow.log_params(config.to_dict())

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(scalars), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


class WandB:
    """A run of Weights & Biases, as its own settings say (WANDB_PROJECT, WANDB_MODE)."""

    def __init__(self, config: Config, out: Path, first_step: int) -> None:
        self._run = _package("wandb").init(name=out.name, config=config.to_dict(), dir=str(out.absolute()))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=step)

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, Callable[[Config, Path, int], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def scalars_of(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line of the history by their names in a tracker; what is not finite is left out.

    >>> scalars_of({"round": 3, "loss": 0.5, "s": None, "lr": 0.1})
    {'loss/train': 0.5, 'lr': 0.1}
    """
    return {
        COLUMNS[name].scalar or name: float(value)
        for name, value in flat(line).items()
        if name in COLUMNS and name != "round" and isinstance(value, int | float) and math.isfinite(value)
    }


def check(config: Config) -> None:
    """Refuse a tracker whose package is missing, before anything is done."""
    if config.tracking:
        _package("tensorboardX" if config.tracking == "tensorboard" else config.tracking)


@contextmanager
def tracked(config: Config, out: Path, rounds_done: int) -> Iterator[Callable[[Any, Any, Line | None], None]]:
    """An observer of the run that tells the configuration's tracker, if there is one. It cannot stop the run."""
    tracker: Tracker | None = None

    def attempt(action: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal tracker
        try:
            return action(*arguments)
        except Exception as error:  # whatever a tracker's package raises: the run does not depend on it
            tracker = None
            print(
                f"adaquantfl: {config.tracking} failed and is left out from here on; the run continues. "
                f"{type(error).__name__}: {error}",
                file=sys.stderr,
            )

    def tell(config: Any, state: Any, line: Line | None) -> None:
        if tracker is not None and line is not None:
            attempt(tracker.add, int(line["round"]), scalars_of(line))

    if config.tracking:
        tracker = attempt(TRACKERS[config.tracking], config, out, rounds_done + 1)
    try:
        yield tell
    finally:
        if tracker is not None:
            attempt(tracker.close)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        wanted = "'adaquantfl[tensorboard]'" if name == "tensorboardX" else name
        raise ConfigError(f"This `tracking` needs the package {name}: pip install {wanted}") from None
