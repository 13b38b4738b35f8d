"""How a client process notices that its server's process is gone, also while it trains or connects."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from ...errors import EngineError
from .rendezvous import JOIN_SECONDS, open_store

_POLL_SECONDS = 1.0
_SILENCE_SECONDS = 900.0  # without an answer from the store: its host is gone
_OWN_END_SECONDS = 2.0  # for a client that has noticed it by itself, or has heard that the run is over


@contextmanager
def ends_with_store(host: str, port: int, client: int) -> Iterator[None]:
    """End this process within seconds of the process that hosts the store: the server, or a launcher that ends with it.

    It needs no connection but the one that every client has, so that it works across hosts.
    """
    over = threading.Event()
    threading.Thread(target=_watch_store, args=(host, port, client, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch_store(host: str, port: int, client: int, over: threading.Event) -> None:
    try:
        store = open_store(host, port, JOIN_SECONDS)  # of its own: a store answers one question at a time
        store.set_timeout(timedelta(seconds=_SILENCE_SECONDS))
        while not over.wait(_POLL_SECONDS):
            store.check(["any"])
    except (EngineError, RuntimeError):
        if not over.wait(_OWN_END_SECONDS):
            print(f"adaquantfl: client {client} ends: the server's process is gone.", file=sys.stderr, flush=True)
            os._exit(1)  # also in the middle of a call
