"""How a server and its clients find each other: PyTorch's key-value store, and what both write into it."""

from __future__ import annotations

import json
import socket
import time
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, Store, TCPStore

from ... import __version__
from ...errors import EngineError
from ...training.settings import Settings
from .connection import CLIENT, Connection, first_line
from .secrets import VARIABLE, Seal, join_proof

JOIN_SECONDS = 300.0  # that a client may take to join at the start of a run
POLL_SECONDS = 0.1  # between two looks into the store
ARRIVALS = "arrivals"  # a key of a server's part of the store: how many clients have arrived
ARRIVAL = "arrival-{}".format  # the key for client, address and proof of arrival 1, 2, ...
ADMITTED = "admitted-{}".format  # this key is present once the server connects to the arrival, or has refused it
REFUSED = "refused"  # the value of that key where it has
CONNECTION = "connection-{}".format  # the prefix under which gloo connects the two
_RUN = "run"  # the key for the run that is played
_PROBE_SECONDS = 5.0
_RETRY_SECONDS = 0.2


def announce_run(store: Store, server: str, config: Settings, signed: bool = False) -> None:
    """Tell clients what is played, and by which server. signed: whether it asks for their secrets."""
    run = {"version": __version__, "server": server, "config": config.for_clients(), "signed": signed}
    store.set(_RUN, json.dumps(run))


def announce_end(store: Store, reason: str | None = None) -> None:
    """Tell clients that there is nothing left to do, or why there is no run."""
    store.set(_RUN, json.dumps({"version": __version__, "stop": reason}))


def announced(store: Store) -> bytes:
    """What the server has announced; waits until it has."""
    return store.get(_RUN)


def server_part(store: Store, server: str) -> Store:
    """The part of the store that belongs to one server: a launcher that restarts all processes keeps the store."""
    return PrefixStore(server, store)


def _read_announcement(data: bytes, client: int, has_secret: bool) -> tuple[str, dict[str, Any]] | None:
    """The server's name and the keys of the configuration; None where there is nothing left to do."""
    run = json.loads(data)
    if run["version"] != __version__:
        raise EngineError(
            f"The server has adaquantfl {run['version']}, client {client} has {__version__}: install the same version."
        )
    if run.get("stop"):
        raise EngineError(f"Client {client} has nothing to do: {run['stop']}")
    if "config" not in run:
        return None
    if run["signed"] != has_secret:
        who = ("Client", "the server") if has_secret else ("The server of client", "the client")
        raise EngineError(f"{who[0]} {client} has {VARIABLE}, but {who[1]} has not: set it for both, or for neither.")
    return run["server"], run["config"]


def join(
    store: Store, address: str, client: int, secret: bytes = b""
) -> tuple[Connection, dict[str, Any], Seal | None] | None:
    """The connection to the server, what is played, and what seals answers; None if there is nothing to play."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        announcement = announced(store)
        run = _read_announcement(announcement, client, bool(secret))
        if run is None:
            return None
        part, config = server_part(store, run[0]), run[1]
        number = part.add(ARRIVALS, 1)
        proof = join_proof(secret, run[0], number, client, address) if secret else ""
        part.set(ARRIVAL(number), json.dumps([client, address, proof]))
        while announced(store) == announcement:  # otherwise another server has replaced that one
            if part.check([ADMITTED(number)]):
                if part.get(ADMITTED(number)) == REFUSED.encode():
                    raise EngineError(f"The server refused client {client}: it has another secret for that client.")
                seal = Seal(secret, run[0] + CONNECTION(number)) if secret else None
                return Connection(part, CONNECTION(number), CLIENT, address), config, seal
            if time.monotonic() > deadline:
                raise EngineError(f"Client {client} was not let in within {JOIN_SECONDS:g} s: is the server there?")
            time.sleep(POLL_SECONDS)


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
