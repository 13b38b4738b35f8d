"""Between the command and the server app that it has started elsewhere: the request goes there, news come back.

A socket in a folder that only this user can open, and a key on top: what comes through it is our own.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from ...errors import AdaQuantError, EngineError, reason_of
from ...runs.config import Config
from ...runs.loop import Observer, Request, RunState

_ADDRESS, _KEY = "ADAQUANTFL_LAUNCHER", "ADAQUANTFL_LAUNCHER_KEY"
_POLL_SECONDS = 0.2
_START_WITHIN = 300.0  # seconds for the server app to report; Flower's processes start slowly on busy machines
_STOP_WITHIN = 30.0  # seconds for it to end the run in good order


class Command:
    """The command's end. `follow` shows the run's progress and ends as the run does."""

    def __init__(self, folder: Path, request: Request) -> None:
        self._address, self._key = str(folder / "link"), secrets.token_bytes(32)
        self._listener = Listener(self._address, "AF_UNIX", authkey=self._key)
        self._request = replace(request, out=request.out.absolute())  # the server app may be in another folder
        self._app: Connection | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """What the server app finds us by."""
        return {_ADDRESS: self._address, _KEY: self._key.hex()}

    def follow(self, observer: Observer | None, check: Callable[[], None]) -> dict[str, Any]:
        """The run's summary. check: called now and then; it raises where there is nobody left to wait for."""
        deadline = time.monotonic() + _START_WITHIN
        while self._app is None:
            check()
            if time.monotonic() > deadline:
                raise EngineError(f"Flower did not start the server app within {_START_WITHIN:g} s.")
            time.sleep(_POLL_SECONDS)
        try:
            while True:
                while not self._app.poll(_POLL_SECONDS):
                    check()
                kind, content = _next(self._app)
                if kind == "round" and observer:
                    observer(*content)
                elif kind == "summary":
                    return dict(content)
                elif kind == "error":
                    raise content
        except KeyboardInterrupt:  # ask the server app to stop, and give it the time to write its checkpoint
            self._app.send("stop")
            while self._app.poll(_STOP_WITHIN) and _next(self._app)[0] == "round":
                pass
            raise

    def close(self) -> None:
        self._listener.close()
        if self._app is not None:
            self._app.close()

    def _accept(self) -> None:
        with suppress(Exception):  # we are closing
            app = self._listener.accept()
            app.send(self._request)
            self._app = app


class ServerEnd:
    """The server app's end."""

    def __init__(self) -> None:
        self._connection = Client(os.environ[_ADDRESS], "AF_UNIX", authkey=bytes.fromhex(os.environ[_KEY]))
        self.request: Request = self._connection.recv()

    @staticmethod
    def connect() -> ServerEnd | None:
        """None where the app was started by hand."""
        return ServerEnd() if _ADDRESS in os.environ else None

    def observe(self, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        """Pass a round on."""
        self._connection.send(("round", (config, state, line)))

    def stopped(self) -> bool:
        """Whether the command wants no more, or is gone."""
        try:
            return self._connection.poll()
        except OSError:
            return True

    def finish(self, summary: dict[str, Any]) -> None:
        self._connection.send(("summary", summary))

    def fail(self, error: Exception) -> None:
        """Pass on why the run ended, if the command is still there."""
        ours = error if isinstance(error, AdaQuantError) else EngineError(f"The server app failed: {reason_of(error)}")
        with suppress(OSError):
            self._connection.send(("error", ours))


def _next(app: Connection) -> tuple[str, Any]:
    """The next news of the server app."""
    try:
        kind, content = app.recv()
        return kind, content
    except (EOFError, OSError):
        return "error", EngineError(
            "The server app ended during the run without an error message: it was killed or crashed."
        )
