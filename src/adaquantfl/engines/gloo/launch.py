"""A run on the gloo engine: with client processes of its own here, or as one of the processes that a launcher started.

A launcher, such as torchrun, says who is who in the environment: rank 0 is the server, rank r client r - 1.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch.distributed import Store

from ...errors import AdaQuantError, ConfigError
from ...runs.config import Config
from ...runs.loop import Observer, Request
from ...threads import cores
from . import client
from .crew import COMMAND, Crew
from .pair import keep_store, open_store
from .server import GlooEngine

_HERE = "127.0.0.1"


@dataclass(frozen=True)
class Place:
    """This process among those that a launcher started."""

    rank: int
    world: int
    host: str
    port: int
    store_is_kept: bool  # by the launcher

    @staticmethod
    def of_environment() -> Place | None:
        """None where no launcher did."""
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        values = [os.environ.get(name, "") for name in names]
        if not all(values):
            return None
        numbers = {name: value for name, value in zip(names, values, strict=True) if name != "MASTER_ADDR"}
        for name, value in numbers.items():
            if not value.isdigit():
                raise ConfigError(f"{name} = {value!r} in the environment: expected a whole number.")
        rank, world, port = map(int, numbers.values())
        return Place(rank, world, values[2], port, os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True")


def launch(request: Request, observer: Observer | None = None) -> dict[str, Any] | None:
    """Play a run; None where this process was one of its clients."""
    place = Place.of_environment()
    if place is None:
        return request.play(observer, start_here)
    if place.rank > 0:
        for stop in (signal.SIGINT, signal.SIGTERM):  # a client has nothing to save, and Python cannot act inside gloo
            signal.signal(stop, signal.SIG_DFL)
        client.play(open_store(place.host, place.port, client.JOIN_SECONDS), place.host, place.rank - 1)
        return None
    return _serve(place, request, observer)


def start_here(config: Config, command: Sequence[str] = COMMAND) -> GlooEngine:
    """An engine with a process for each client on this machine."""
    store = keep_store(_HERE)
    crew = Crew(config.clients, store.port, command)
    try:
        return GlooEngine(config, store, crew, at_once=config.workers or cores())
    except BaseException:
        crew.close()
        raise


def _serve(place: Place, request: Request, observer: Observer | None) -> dict[str, Any]:
    store = (
        open_store(place.host, place.port, client.JOIN_SECONDS) if place.store_is_kept else keep_store(port=place.port)
    )

    def connect(config: Config) -> GlooEngine:
        if place.world != config.clients + 1:
            raise ConfigError(
                f"{place.world} processes were started (WORLD_SIZE), but {config.clients} clients and the server "
                f"are {config.clients + 1}. Start as many, or --set clients={max(1, place.world - 1)}."
            )
        return GlooEngine(config, store)

    try:
        summary = request.play(observer, connect)
    except AdaQuantError as error:
        _send_home(store, str(error))
        raise
    _send_home(store)
    return summary


def _send_home(store: Store, reason: str | None = None) -> None:
    """Clients that wait for a run to be announced, or come too late for it, wait no longer."""
    with suppress(RuntimeError):  # the launcher may be gone, and its store
        store.set(client.RUN, client.refusal(reason))
