"""The report of runs that may not have ended, served on this machine's loopback and kept up to date.

It reads the runs' folders only, so the runs may be in any process. Only this machine can connect. A page from elsewhere
that makes a browser ask on its behalf is refused by the name that it asks for.
"""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..errors import AdaQuantError, DataError, EngineError
from ..runs.records import CONFIG, HISTORY, SUMMARY, RunRecord, find_runs, load_run
from . import page as report

HOST, PORT = "127.0.0.1", 8640

_DATA = "/data.json"
_LEAST_SECONDS = 0.5  # between two looks at the folders, however many pages ask
_MOST_BYTES = 100_000_000  # of a history; more would keep this machine busy with reading

_Mark = tuple[tuple[int, int], ...]


class Watched:
    """The content of the page, read again when the folders change."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = list(folders)
        self._runs: dict[Path, tuple[_Mark, RunRecord]] = {}
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._version, self._content = 0, self._read()  # raises where there is no run

    def content(self) -> dict[str, Any]:
        """The page's content, with its version and a sentence on how far the runs are."""
        with self._lock:
            if time.monotonic() - self._looked >= _LEAST_SECONDS:
                try:
                    fresh = self._read()
                except (AdaQuantError, OSError) as error:  # a run is being resumed, or its folder was removed
                    fresh = {**self._content, "status": f"This is the last that could be read: {error}"}
                if fresh != self._content:
                    self._version, self._content = self._version + 1, fresh
            return {**self._content, "version": str(self._version)}

    def _read(self) -> dict[str, Any]:
        runs = find_runs(self._folders, self._load)
        self._looked = time.monotonic()
        return {**report.content(runs, self._folders[0]), "status": status(runs)}

    def _load(self, folder: Path) -> RunRecord:
        """A run from its files, or as it was where they have not changed."""
        mark = tuple(_mark(folder / name) for name in (CONFIG, HISTORY, SUMMARY))
        if mark[1][0] > _MOST_BYTES:
            raise DataError(f"{folder / HISTORY} is larger than {_MOST_BYTES:,} bytes: too large to be watched.")
        if folder not in self._runs or self._runs[folder][0] != mark:
            self._runs[folder] = mark, load_run(folder)
        return self._runs[folder][1]


def status(runs: Sequence[RunRecord]) -> str:
    """How far the runs are, in a sentence."""
    going = [run for run in runs if not run.finished]
    if not going:
        return f"Finished: {len(runs)} runs." if len(runs) > 1 else "Finished."
    parts = [f"{run.label} seed {run.seed}, round {run.rounds} of {run.config.get('rounds', '?')}" for run in going]
    done = f"; {len(runs) - len(going)} finished" if len(going) < len(runs) else ""
    return f"Under way: {'; '.join(parts[:4])}{'; and more' if len(parts) > 4 else ''}{done}."


def serve(folders: Sequence[Path], port: int = PORT) -> PageServer:
    """A server of these folders' page; `serve_forever` starts it. Port 0 takes one that is free."""
    watched = Watched(folders)
    try:
        return PageServer(watched, port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        taken = "is in use" if error.errno == errno.EADDRINUSE else "needs special rights"
        raise EngineError(f"Port {port} {taken}. Choose another with --port, or --port 0 for any free one.") from None


class PageServer(ThreadingHTTPServer):
    """Serves one `Watched` on the loopback."""

    daemon_threads = True

    def __init__(self, watched: Watched, port: int) -> None:
        super().__init__((HOST, port), _Handler)
        self.watched = watched

    @property
    def address(self) -> str:
        """Where a browser on this machine finds it."""
        return f"http://{HOST}:{self.server_port}/"

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which it may be asked for."""
        return f"{HOST}:{self.server_port}", f"localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 20  # seconds that a connection may be silent
    server_version, sys_version = "adaquantfl", ""

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.names:
            # Some other site's name that leads here: its page must not read ours.
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", f"Ask for {self.server.address} instead.")
            return
        asked = urlsplit(self.path)
        content = self.server.watched.content() if asked.path in ("/", _DATA) else {}
        if asked.path == "/":
            self._answer(HTTPStatus.OK, "text/html", report.render(content, live=_DATA))
        elif asked.path != _DATA:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", f"There is only {self.server.address}.")
        elif parse_qs(asked.query).get("since") == [content["version"]]:
            self._answer(HTTPStatus.NO_CONTENT)
        else:
            self._answer(HTTPStatus.OK, "application/json", json.dumps(content, allow_nan=False))

    def _answer(self, code: HTTPStatus, kind: str = "", text: str = "") -> None:
        body = text.encode()
        self.send_response(code)
        if kind:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A request every two seconds is no news."""


_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _mark(path: Path) -> tuple[int, int]:
    """Changes when the file does; (-1, -1) where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return -1, -1
    return found.st_size, found.st_mtime_ns
