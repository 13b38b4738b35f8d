"""Between the command and the server app that it has started elsewhere: the request goes there, news come back.

A socket in a folder that only this user can open, and a key on top: what comes through it is our own.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from ...errors import AdaQuantError, EngineError, reason_of
from ...runs.config import Config
from ...runs.loop import Observer, Request, RunState

_ADDRESS, _KEY = "ADAQUANTFL_LAUNCHER", "ADAQUANTFL_LAUNCHER_KEY"
_START_WITHIN = 300.0  # seconds for the server app to report; Flower's processes start slowly on busy machines
_STOP_WITHIN = 30.0  # seconds for it to end the run in good order


class Command:
    """The command's end. `follow` shows the run's progress and ends as the run does."""

    def __init__(self, folder: Path, request: Request) -> None:
        self._address, self._key = str(folder / "link"), secrets.token_bytes(32)
        self._listener = Listener(self._address, "AF_UNIX", authkey=self._key)
        self._request = replace(request, out=request.out.absolute())  # the server app may be in another folder
        self._news: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self._app: Connection | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """What the server app finds us by."""
        return {_ADDRESS: self._address, _KEY: self._key.hex()}

    def follow(self, observer: Observer | None, check: Callable[[], None]) -> dict[str, Any]:
        """The run's summary. check: called now and then; it raises where there is nobody left to wait for."""
        deadline = time.monotonic() + _START_WITHIN
        try:
            while True:
                try:
                    kind, *content = self._news.get(timeout=0.2)
                except queue.Empty:
                    check()
                    if self._app is None and time.monotonic() > deadline:
                        raise EngineError(f"Flower did not start the server app within {_START_WITHIN:g} s.") from None
                    continue
                if kind == "round" and observer:
                    observer(*content)
                elif kind == "summary":
                    return dict(content[0])
                elif kind == "error":
                    raise content[0]
                elif kind == "end":
                    raise EngineError("The server app ended in mid-run without a word: it was killed, or has crashed.")
        except KeyboardInterrupt:
            self._stop()
            raise

    def close(self) -> None:
        self._listener.close()
        if self._app is not None:
            self._app.close()

    def _listen(self) -> None:
        try:
            self._app = self._listener.accept()
            self._app.send(self._request)
            while True:
                self._news.put(self._app.recv())
        except Exception:  # the other end is gone, or we are closing
            self._news.put(("end",))

    def _stop(self) -> None:
        """Ask the server app to stop, and give it the time to write its checkpoint."""
        if self._app is None:
            return
        self._app.send("stop")
        deadline = time.monotonic() + _STOP_WITHIN
        while time.monotonic() < deadline:
            try:
                if self._news.get(timeout=0.2)[0] in ("error", "summary", "end"):
                    return
            except queue.Empty:
                continue


class ServerEnd:
    """The server app's end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.request: Request = connection.recv()

    @staticmethod
    def connect(environment: Mapping[str, str] = os.environ) -> ServerEnd | None:
        """None where the app was started by hand."""
        if _ADDRESS not in environment:
            return None
        return ServerEnd(Client(environment[_ADDRESS], "AF_UNIX", authkey=bytes.fromhex(environment[_KEY])))

    def observe(self, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        """Pass a round on."""
        self._connection.send(("round", config, state, line))

    def stopped(self) -> bool:
        """Whether the command wants no more, or is gone."""
        try:
            return self._connection.poll()
        except OSError:
            return True

    def finish(self, summary: dict[str, Any]) -> None:
        self._connection.send(("summary", summary))

    def fail(self, error: Exception) -> None:
        """Pass on why the run ended."""
        ours = error if isinstance(error, AdaQuantError) else EngineError(f"The server app failed: {reason_of(error)}")
        self._connection.send(("error", ours))
