"""Which files of a user's own a client runs: those that it was started with. A server cannot make it run others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..errors import TaskError
from ..training.own_files import OwnFile, named
from ..training.settings import Settings

VARIABLES = {"task": "ADAQUANTFL_TASK", "quantizer": "ADAQUANTFL_QUANTIZER"}  # in a client's environment: FILE.py:NAME


def allow(files: Mapping[str, str]) -> None:
    """Let this process, and those that it starts, run these files as clients, by key."""
    for key, variable in VARIABLES.items():
        os.environ.pop(variable, None)
        if key in files:
            os.environ[variable] = files[key]


def settings_here(values: Mapping[str, Any]) -> Settings:
    """The settings that a server sent, with the files of this host; the server's digests of them must be theirs."""
    found = dict(values)
    for key, file in named(values).items():
        own = os.environ.get(VARIABLES[key])
        if not own:
            raise TaskError(
                f"The server uses the {key} {file.path.name}:{file.name}, but this client was started without it, and "
                "a server cannot choose which file runs here. Put the path of that file into its environment: "
                f"{VARIABLES[key]}=FILE.py:NAME."
            )
        here = str(OwnFile.of(own, key=key))
        found[key] = here if key == "task" else {**values[key], "name": here}
    config = Settings(**found)
    config.make_known()
    return config
