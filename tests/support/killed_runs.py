"""Plays a run in child processes that kill themselves: python killed_runs.py OUT SETTINGS_AS_JSON PLACE...

A place is "KIND-ROUND": "line-3" right after the history has round 3, "half-3" when half of its line is written,
"checkpoint-4" when the checkpoint of round 4 is written but not yet in its place, "training-3" in the middle of round
3. Each child resumes where the one before it died. They are forked before any thread is started, so that the libraries
are imported only once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaquantfl import checkpoint, durable
from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs import loop
from adaquantfl.runs.config import load_config
from adaquantfl.runs.directory import RunDirectory


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def set_trap(kind: str, round: int) -> None:
    """Change the library such that this process dies at the place."""
    append, carry, save = RunDirectory.append, LocalEngine.carry, checkpoint.save

    def appending(self: RunDirectory, line: Mapping[str, Any]) -> None:
        if kind == "half" and line["round"] == round:
            assert self._history is not None
            self._history.write(json.dumps(dict(line))[:40])
            self._history.flush()
            die()
        append(self, line)
        if kind == "line" and line["round"] == round:
            die()

    def carrying(self: LocalEngine, server: Any, calls: list[Any]) -> Any:
        for answer in carry(self, server, calls):
            yield answer
            if kind == "training" and calls[0].name == "train" and server.current.round + 1 == round:
                die()

    def saving(tree: Mapping[str, Any], folder: Path) -> Path:
        if kind == "checkpoint" and tree["run"]["round"] == round:
            durable.os.replace = lambda source, target: die()  # type: ignore[attr-defined]
        return save(tree, folder)

    RunDirectory.append, LocalEngine.carry = appending, carrying  # type: ignore[method-assign,assignment]
    checkpoint.save = saving


def main(out: Path, settings: dict[str, Any], places: list[str]) -> None:
    for place in places:
        child = os.fork()
        if child == 0:
            kind, _, round = place.partition("-")
            set_trap(kind, int(round))
            if out.exists():
                loop.resume(out)
            else:
                loop.run(load_config("demo", settings), out)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"The child was not killed at {place}: status {status}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])
