"""Flower's SuperNode, which asks for messages as often as we like: flwr 1.41 naps for 3 s, and has no option for it."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from types import SimpleNamespace

from flwr.supernode.cli.flower_supernode import flower_supernode


def main(poll: float) -> None:
    """Be a SuperNode that naps for at most `poll` seconds."""
    loop = import_module("flwr.supernode.start_client_internal")
    loop.__dict__["time"] = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, poll)))
    flower_supernode()


if __name__ == "__main__":
    seconds = float(sys.argv.pop(1))
    sys.argv[0] = "flower-supernode"
    main(seconds)
