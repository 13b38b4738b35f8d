"""Shorter polling: flwr has fixed intervals of 1 to 3 s between a message and its answer, and no options for them.

Each function replaces one name in one module of Flower, in this process. Those names are private: where a version of
Flower has them no more, its own intervals stay, and a line in the log says so.

python -m adaquantfl.engines.flower.polling SECONDS ARGUMENTS is Flower's SuperNode with a shorter interval.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

_FIRST_RETRY, _LONGEST_RETRY = 0.02, 1.0  # seconds until a part of a reply that is on its way is asked for again
_log = logging.getLogger("flwr")


def poll_messages_sooner(seconds: float) -> ModuleType | None:
    """A SuperNode asks for messages, and for its client's answer, at least every `seconds` (3 and 0.5)."""
    clock = SimpleNamespace(sleep=lambda interval: time.sleep(min(interval, seconds)))
    return _replace("flwr.supernode.start_client_internal", "time", lambda _: clock)


def poll_replies_sooner() -> ModuleType | None:
    """A server app that finds a reply whose parts are still on their way asks again soon (1 s)."""
    sooner = {"initial_backoff": _FIRST_RETRY, "backoff_cap": _LONGEST_RETRY}
    return _replace("flwr.superlink.grid.http_grid", "pull_objects", lambda pull: partial(pull, **sooner))


def _replace(path: str, name: str, change: Callable[[Any], Any]) -> ModuleType | None:
    """A module of Flower with this name changed; None where it has no such name."""
    try:
        module = import_module(path)
        module.__dict__[name] = change(getattr(module, name))
        return module
    except (ImportError, AttributeError):
        _log.warning("This version of Flower has no %s in %s: its own polling intervals stay.", name, path)
        return None


if __name__ == "__main__":
    from flwr.supernode.cli.flower_supernode import flower_supernode

    poll_messages_sooner(float(sys.argv.pop(1)))
    sys.argv[0] = "flower-supernode"
    flower_supernode()
