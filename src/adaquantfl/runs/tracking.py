"""What a run tells TensorBoard: the scalars of each round, where `tracking` in the configuration asks for it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..engines.launch import Observer
from ..errors import ConfigError
from .columns import COLUMNS, flat
from .config import Config
from .state import RunState

_log = logging.getLogger("adaquantfl")
FOLDER = "tensorboard"  # of the event files, in the run's folder


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
    if config.tracking and find_spec("tensorboardX") is None:
        raise ConfigError("tracking = 'tensorboard' needs tensorboardX: pip install 'adaquantfl[tensorboard]'")


@contextmanager
def tracked(config: Config, out: Path, rounds_done: int) -> Iterator[Observer]:
    """An observer of the run that writes a new event file in its folder, where the configuration asks for one."""
    if not config.tracking:
        yield lambda config, state, line: None
        return
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    # A run may resume within a second, and TensorBoard reads the files of a folder in the order of their names.
    file = EventsWriter(str(out / FOLDER / "events"), f".{time.time_ns() % 10**9:09d}.adaquantfl")
    failed = set[str]()

    def write(step: int, **content: Any) -> None:
        file.write_event(Event(wall_time=time.time(), step=step, **content))
        file.flush()  # other processes can read it at once

    def tell(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if line is None:
            return
        try:
            values = [{"tag": tag, "simple_value": value} for tag, value in scalars_of(line).items()]
            write(int(line["round"]), summary={"value": values})
        except OSError as error:  # no training ends for it
            if not failed:
                _log.warning("TensorBoard's file lacks rounds: %s.", error.strerror)
            failed.add(str(error))

    write(rounds_done + 1, session_log={"status": SessionLog.START})  # TensorBoard drops what it has from there on
    try:
        yield tell
    finally:
        file.close()
