"""A TCP proxy on loopback that counts the bytes of each direction and notes when requests of which kind pass."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_REQUEST = re.compile(rb"POST /v1/fleet/([a-z-]+) HTTP")


@dataclass
class Proxy:
    """Listens at `address` and passes everything on to `target`. requests: when, and of which kind."""

    target: tuple[str, int]
    up: int = 0
    down: int = 0
    requests: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def first(self, kind: str, since: float) -> float:
        """When the first request of a kind passed."""
        return next(when for when, of in self.requests if of == kind and when >= since)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self.target)
            for source, sink, count in ((client, server, self._sent), (server, client, self._received)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_pass_on, args=(source, sink, count), daemon=True).start()

    def _sent(self, data: bytes) -> None:
        with self._lock:
            self.up += len(data)
            self.requests += [(time.time(), kind.decode()) for kind in _REQUEST.findall(data)]

    def _received(self, data: bytes) -> None:
        with self._lock:
            self.down += len(data)


def _pass_on(source: socket.socket, sink: socket.socket, count: Callable[[bytes], None]) -> None:
    try:
        while data := source.recv(65536):
            count(data)
            sink.sendall(data)
    except OSError:
        pass
    finally:
        for one in (source, sink):
            one.close()
