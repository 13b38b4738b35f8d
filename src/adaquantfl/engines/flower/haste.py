"""Shorter naps: flwr 1.41 has fixed ones of 1 to 3 s between a message and its answer, and no options for them.

Each function replaces one name in one module of Flower, in this process; tests hold that the names are there.
"""

from __future__ import annotations

import time
from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace

_FIRST_NAP, _LONGEST_NAP = 0.02, 1.0  # seconds until a part of a reply that is on its way is asked for again


def hurry_supernode(poll: float) -> ModuleType:
    """A SuperNode asks for messages, and for its client's answer, at least every `poll` seconds (3 and 0.5)."""
    loop = import_module("flwr.supernode.start_client_internal")
    loop.__dict__["time"] = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, poll)))
    return loop


def hurry_server() -> ModuleType:
    """A server app that finds a reply whose parts are still on their way looks again soon (1 s)."""
    grid = import_module("flwr.superlink.grid.http_grid")
    pull = import_module("flwr.supercore.inflatable.inflatable_utils").pull_objects
    grid.__dict__["pull_objects"] = partial(pull, initial_backoff=_FIRST_NAP, backoff_cap=_LONGEST_NAP)
    return grid
