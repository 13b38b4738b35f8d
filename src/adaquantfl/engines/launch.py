"""Which engine plays a run: the same request, whatever carries the messages. Another package can bring an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from ..errors import ConfigError
from ..open_registry import Registry

Observer = Callable[[Any, Any, "dict[str, Any] | None"], None]  # (configuration, state, the round's line)


class Request(Protocol):
    """A run to be played: `runs.loop.Request`."""

    @property
    def own_files(self) -> dict[str, str]: ...

    def play(self, observer: Observer | None = None, connect: Callable[[Any], Any] | None = None) -> dict[str, Any]:
        """Carry it out; returns the run's summary. connect: makes the engine for a configuration."""


Launch = Callable[[Request, "Observer | None"], "dict[str, Any] | None"]


@dataclass(frozen=True)
class Launcher:
    """An engine by name. launch: plays a request; returns the summary, or None where this process is only a client.

    One of another package usually calls `request.play(observer, MyEngine)` with a subclass of `engines.base.Engine`.
    """

    name: str
    launch: Launch


def _later(module: str, function: str) -> Launch:
    """A function that is imported when it is called: engines bring PyTorch, Flower and Ray."""

    def launch(request: Request, observer: Observer | None) -> dict[str, Any] | None:
        result: dict[str, Any] | None = getattr(import_module(module, __package__), function)(request, observer)
        return result

    return launch


def _facts(item: object) -> tuple[str, Mapping[int, str]]:
    if not isinstance(item, Launcher):
        raise ConfigError(f"{item!r} is not a Launcher.")
    return item.name, {}


ENGINES: Registry[Launcher] = Registry(
    "engine",
    "adaquantfl.engines",
    lambda: (
        Launcher("local", lambda request, observer: request.play(observer)),
        Launcher("gloo", _later(".gloo.launch", "launch")),
        Launcher("flower", _later(".flower", "launch")),
    ),
    _facts,
    ConfigError,
)


def is_client(engine: str) -> bool:
    """Whether a launcher such as torchrun started this process as a client: the run's folder is the server's."""
    return engine == "gloo" and os.environ.get("RANK", "0") != "0"


def launch(engine: str, request: Request, observer: Observer | None = None) -> dict[str, Any] | None:
    """Play a run on the engine of this name; None where this process is only a client of it."""
    from . import own_file

    chosen = ENGINES.find(engine)
    own_file.allow(request.own_files)
    return chosen.launch(request, observer)
