"""Which task of a user's own a client runs: the one it was started with. A server cannot make it run another."""

from __future__ import annotations

import os
from dataclasses import replace

from ..errors import TaskError
from ..runs.config import Config
from ..runs.task_file import TaskFile

VARIABLE = "ADAQUANTFL_TASK"  # in a client's environment: FILE.py:FUNCTION on its host


def allow(task: str) -> None:
    """Let this process, and those that it starts, run this task as clients; "": none."""
    os.environ.pop(VARIABLE, None)
    if task:
        os.environ[VARIABLE] = str(TaskFile.of(task))


def as_here(config: Config) -> Config:
    """A configuration that a server sent, with the file of this host; its digest must be that of the server's file."""
    if not config.task:
        return config
    own = os.environ.get(VARIABLE)
    if not own:
        name = TaskFile.of(config.task)
        raise TaskError(
            f"The server runs the task {name.path.name}:{name.function}, but this client was started without one, and "
            "a server cannot choose which file runs here. Start it with the path of that file: adaquantfl flower node "
            f"--task FILE.py:FUNCTION, or {VARIABLE}=FILE.py:FUNCTION in its environment."
        )
    return replace(config, task=str(TaskFile.of(own)))
