"""How a server and its clients find each other: PyTorch's key-value store, and what both write into it."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import Store, TCPStore

from ... import __version__
from ...errors import EngineError
from ...runs.config import Config, config_of
from .connection import first_line

JOIN_SECONDS = 300.0  # that a client may take to join at the start of a run
POLL_SECONDS = 0.1  # between two looks into the store
_RUN = "run"  # the store's key for the run that is played
_PROBE_SECONDS = 5.0
_RETRY_SECONDS = 0.2


@dataclass(frozen=True)
class StoreKeys:
    """The store's keys for one server and the clients that join it, which are numbered 1, 2, ... as they arrive.

    Each server has a name of its own, because a launcher that restarts all processes keeps the store.
    """

    server: str

    @property
    def arrivals(self) -> str:
        """The number of arrivals."""
        return f"{self.server}/arrivals"

    def arrival(self, number: int) -> str:
        """Who arrived, and at which address."""
        return f"{self.server}/arrival-{number}"

    def admitted(self, number: int) -> str:
        """Present once the server connects to the arrival."""
        return f"{self.server}/admitted-{number}"

    def connection(self, number: int) -> str:
        """The prefix under which gloo connects the two."""
        return f"{self.server}/connection-{number}"


def announce_run(store: Store, server: str, config: Config) -> None:
    """Tell clients what is played, and by which server."""
    store.set(_RUN, json.dumps({"version": __version__, "server": server, "config": config.to_dict()}))


def announce_end(store: Store, reason: str | None = None) -> None:
    """Tell clients that there is nothing left to do, or why there is no run."""
    store.set(_RUN, json.dumps({"version": __version__, "stop": reason}))


def announced(store: Store) -> bytes:
    """What the server has announced; waits until it has."""
    return store.get(_RUN)


def read_announcement(data: bytes, client: int) -> tuple[StoreKeys, Config] | None:
    """The server and the configuration; None where there is nothing left to do."""
    run = json.loads(data)
    if run["version"] != __version__:
        raise EngineError(
            f"The server has adaquantfl {run['version']}, client {client} has {__version__}: install the same version."
        )
    if run.get("stop"):
        raise EngineError(f"Client {client} has nothing to do: {run['stop']}")
    return (StoreKeys(run["server"]), config_of(run["config"])) if "config" in run else None


def open_store(host: str, port: int, seconds: float) -> TCPStore:
    """The store that another process hosts, or will host within this many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), _PROBE_SECONDS).close()  # PyTorch logs each of its own attempts
            return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds))
        except (OSError, RuntimeError) as error:
            if time.monotonic() > deadline:
                raise EngineError(
                    f"The server's store at {host}:{port} was not reached within {seconds:g} s ({first_line(error)}). "
                    "Is the server running, and is this its address?"
                ) from None
            time.sleep(_RETRY_SECONDS)


def host_store(host: str = "", port: int = 0) -> TCPStore:
    """A store in this process: on one address, or on all of this machine; port 0 is a free one."""
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise EngineError(
            f"The store cannot listen on port {port}: {error.strerror or error}. Choose another MASTER_PORT."
        ) from None
    port = listener.getsockname()[1]
    return TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def address_facing(host: str) -> str:
    """The address of this machine at which `host` can reach it."""
    with socket.socket(_family(host), socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # a datagram socket sends nothing yet
        return str(probe.getsockname()[0])


def _family(host: str) -> socket.AddressFamily:
    """IPv4 where the host has it."""
    try:
        families = {info[0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise EngineError(f"The address of {host} is not known: {error.strerror or error}.") from None
    return socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
