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
from ...training.settings import Settings
from ..launch import Observer, Request
from . import client
from .engine import GlooEngine
from .processes import COMMAND, ClientProcesses
from .rendezvous import JOIN_SECONDS, announce_end, host_store, open_store

_HERE = "127.0.0.1"


@dataclass(frozen=True)
class LaunchedProcess:
    """This process among those that a launcher started."""

    rank: int
    world: int
    host: str
    port: int
    launcher_hosts_store: bool

    @staticmethod
    def of_environment() -> LaunchedProcess | None:
        """None where no launcher started it."""
        host = os.environ.get("MASTER_ADDR", "")
        numbers = {name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
        if not host or not all(numbers.values()):
            return None
        for name, value in numbers.items():
            if not value.isdigit():
                raise ConfigError(f"{name} = {value!r} in the environment: expected a whole number.")
        rank, world, port = map(int, numbers.values())
        return LaunchedProcess(rank, world, host, port, os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True")


def launch(request: Request, observer: Observer | None = None) -> dict[str, Any] | None:
    """Play a run; None where this process was one of its clients."""
    process = LaunchedProcess.of_environment()
    if process is None:
        return request.play(observer, start_here)
    if process.rank > 0:
        for stop in (signal.SIGINT, signal.SIGTERM):  # nothing to save, and gloo blocks Python's handlers
            signal.signal(stop, signal.SIG_DFL)
        client.play_process(process.host, process.port, process.rank - 1)
        return None
    return _serve(process, request, observer)


def start_here(config: Settings, command: Sequence[str] = COMMAND) -> GlooEngine:
    """An engine with a process for each client on this machine."""
    store = host_store(_HERE)
    processes = ClientProcesses(config.clients, store.port, command)
    try:
        return GlooEngine(config, store, processes)
    except BaseException:
        processes.close()
        raise


def _serve(process: LaunchedProcess, request: Request, observer: Observer | None) -> dict[str, Any]:
    if process.launcher_hosts_store:
        store = open_store(process.host, process.port, JOIN_SECONDS)
    else:
        store = host_store(port=process.port)

    def connect(config: Settings) -> GlooEngine:
        if process.world != config.clients + 1:
            raise ConfigError(
                f"{process.world} processes were started (WORLD_SIZE), but {config.clients} clients and the server "
                f"are {config.clients + 1}. Start as many, or --set clients={max(1, process.world - 1)}."
            )
        return GlooEngine(config, store)

    try:
        summary = request.play(observer, connect)
    except AdaQuantError as error:
        _dismiss_clients(store, str(error))
        raise
    _dismiss_clients(store)
    return summary


def _dismiss_clients(store: Store, reason: str | None = None) -> None:
    """Clients that still wait for a run need not wait any longer."""
    with suppress(RuntimeError):  # the launcher may be gone, and its store
        announce_end(store, reason)
