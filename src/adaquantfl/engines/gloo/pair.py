"""A connection between the server and one client: a gloo group of two, and the store where they find each other.

Groups of two rather than one of all: whatever goes wrong in a gloo group ends it for everybody in it. They also
need no way from client to client.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, Store, TCPStore

from ...errors import EngineError
from ...protocol.messages import Vector

SERVER, CLIENT = 0, 1  # ranks in a pair
CONNECT_SECONDS = 30.0  # both ends are at it at the same time
_MESSAGES, _HANG_UP = 0, 1  # tags


class Pair:
    """One end of the connection. Errors are RuntimeErrors, gloo's own."""

    def __init__(self, store: Store, name: str, rank: int, address: str) -> None:
        gloo: Any = ProcessGroupGloo  # PyTorch's type stubs lack most of it
        options = gloo._Options()
        options._devices = [_device(address)]
        options._threads = 1
        options._timeout = timedelta(seconds=CONNECT_SECONDS)
        self._group = gloo(PrefixStore(name, store), rank, 2, options)
        self._peer = CLIENT if rank == SERVER else SERVER

    def send(self, data: bytes | Vector, timeout: float) -> None:
        """Send exactly these bytes or floats."""
        # A copy of bytes: PyTorch's tensors are writable.
        array = data if isinstance(data, np.ndarray) else np.frombuffer(bytearray(data), dtype=np.uint8)
        self._group.send([torch.from_numpy(array)], self._peer, _MESSAGES).wait(timedelta(seconds=timeout))

    def receive(self, size: int, timeout: float) -> bytes:
        """Exactly so many bytes."""
        data: npt.NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)
        self._receive(data, timeout)
        return data.tobytes()

    def receive_floats(self, size: int, timeout: float) -> Vector:
        """Exactly so many float32 values."""
        values: Vector = np.zeros(size, dtype=np.float32)
        if size:
            self._receive(values, timeout)
        return values

    def hang_up(self) -> None:
        """End the connection, from any thread: whoever waits on it, here or at the other end, gets an error.

        A wait that times out is what makes gloo close a group.
        """
        with suppress(RuntimeError):
            waiting = self._group.recv([torch.empty(1)], self._peer, _HANG_UP)
            waiting.wait(timedelta(milliseconds=1))

    def _receive(self, array: npt.NDArray[np.generic], timeout: float) -> None:
        self._group.recv([torch.from_numpy(array)], self._peer, _MESSAGES).wait(timedelta(seconds=timeout))


def open_store(host: str, port: int, seconds: float) -> TCPStore:
    """The store that another process keeps, or will keep within so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=5).close()  # PyTorch's own attempts are noisy
            return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds))
        except (OSError, RuntimeError) as error:
            if time.monotonic() > deadline:
                raise EngineError(
                    f"The server's store at {host}:{port} was not reached within {seconds:g} s ({first_line(error)}). "
                    "Is the server running, and is this its address?"
                ) from None
            time.sleep(0.2)


def first_line(error: Exception) -> str:
    """PyTorch's errors go on with a stack of C++ frames."""
    return str(error).partition("\n")[0].strip()


def keep_store(host: str = "", port: int = 0) -> TCPStore:
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
    """The address of this machine from which `host` is reached: where a connection from there can come to."""
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


@cache  # one listening socket and one thread for all connections of an address
def _device(address: str) -> ProcessGroupGloo.Device:
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    if interface:
        return ProcessGroupGloo.create_device(interface=interface)
    return ProcessGroupGloo.create_device(hostname=address)
