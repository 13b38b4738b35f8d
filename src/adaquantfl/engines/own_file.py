"""Which files of a user's own a client runs: those that it was started with. A server cannot make it run others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import TaskError
from ..training.own_files import OwnFile, named
from ..training.settings import Settings

VARIABLE = "ADAQUANTFL_TASK"  # in a client's environment: FILE.py:FUNCTION on its host
METHODS_VARIABLE = "ADAQUANTFL_METHODS"  # rules and quantizers: FILE.py:CLASS, separated by commas


def allow(task: str, methods: Sequence[str] = ()) -> None:
    """Let this process, and those that it starts, run these files as clients; "": no task."""
    for variable in (VARIABLE, METHODS_VARIABLE):
        os.environ.pop(variable, None)
    if task:
        os.environ[VARIABLE] = str(OwnFile.of(task))
    if methods:
        os.environ[METHODS_VARIABLE] = ",".join(methods)


def as_here(config: Settings) -> Settings:
    """A configuration that a server sent, with the file of this host; its digest must be that of the server's file."""
    if not config.task:
        return config
    own = os.environ.get(VARIABLE)
    if not own:
        name = OwnFile.of(config.task)
        raise TaskError(
            f"The server runs the task {name.path.name}:{name.name}, but this client was started without one, and "
            "a server cannot choose which file runs here. Put the path of that file into its environment: "
            f"{VARIABLE}=FILE.py:FUNCTION."
        )
    return replace(config, task=str(OwnFile.of(own)))


def methods_here(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that a server sent, with this host's files of rules and quantizers, before any of them is run."""
    texts = [text.strip() for text in os.environ.get(METHODS_VARIABLE, "").split(",") if text.strip()]
    here = {(file.path.name, file.name): file for file in (OwnFile.of(text, key="rule") for text in texts)}
    found = dict(values)
    for key, file in named(values).items():
        if key == "task":
            continue
        own = here.get((file.path.name, file.name))
        if own is None:
            raise TaskError(
                f"The server uses the {key} {file.path.name}:{file.name}, but this client was started without it, and "
                "a server cannot choose which file runs here. Put the path of that file into its environment: "
                f"{METHODS_VARIABLE}=FILE.py:CLASS, several separated by commas."
            )
        found[key] = {**values[key], "name": str(own)} if isinstance(values[key], Mapping) else str(own)
    return found
