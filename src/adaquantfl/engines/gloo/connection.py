"""A connection between the server and one client: a gloo group of two.

The groups have two members because an error in a gloo group ends it for every member. Clients then also need no
network route to each other.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, Store

SERVER, CLIENT = 0, 1  # ranks in the group
CONNECT_SECONDS = 30.0  # both ends connect at the same time
EXCHANGE_SECONDS = 7 * 86_400.0  # gloo's own limit; an engine's deadline and the end of the store are what matters
_MESSAGE_TAG, _ABORT_TAG = 0, 1


class Connection:
    """One end of the connection. Errors are gloo's RuntimeErrors."""

    def __init__(self, store: Store, name: str, rank: int, address: str) -> None:
        gloo: Any = ProcessGroupGloo  # PyTorch's type stubs lack most of it
        options = gloo._Options()
        options._devices = [_device(address)]
        options._threads = 1
        options._timeout = timedelta(seconds=CONNECT_SECONDS)
        self._group = gloo(PrefixStore(name, store), rank, 2, options)
        self._peer = CLIENT if rank == SERVER else SERVER

    def send(self, data: bytes, timeout: float) -> None:
        """Send exactly these bytes; nothing where there are none."""
        if data:
            array = np.frombuffer(bytearray(data), dtype=np.uint8)  # a copy: PyTorch's tensors are writable
            self._group.send([torch.from_numpy(array)], self._peer, _MESSAGE_TAG).wait(timedelta(seconds=timeout))

    def receive(self, size: int, timeout: float) -> bytes:
        """Receive exactly `size` bytes."""
        data: npt.NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)
        if size:
            self._group.recv([torch.from_numpy(data)], self._peer, _MESSAGE_TAG).wait(timedelta(seconds=timeout))
        return data.tobytes()

    def abort(self) -> None:
        """End the connection, from any thread: a wait on it, here or at the other end, fails at once.

        gloo closes a group when a wait in it times out.
        """
        with suppress(RuntimeError):
            waiting = self._group.recv([torch.empty(1)], self._peer, _ABORT_TAG)
            waiting.wait(timedelta(milliseconds=1))


def first_line(error: Exception) -> str:
    """The message of a PyTorch error without the stack of C++ frames that follows it."""
    return str(error).partition("\n")[0].strip()


@cache  # one listening socket and one thread for all connections of an address
def _device(address: str) -> ProcessGroupGloo.Device:
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    if interface:
        return ProcessGroupGloo.create_device(interface=interface)
    return ProcessGroupGloo.create_device(hostname=address)
