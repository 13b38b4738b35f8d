"""The report of runs that may not have ended, served on this machine's loopback and kept up to date.

It reads the runs' folders only, so the runs may be in any process. Only this machine can connect. A page from elsewhere
that makes a browser ask on its behalf is refused by the name that it asks for.
"""

from __future__ import annotations

import errno
import hashlib
import json
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..errors import AdaQuantError, EngineError
from ..runs.records import RunRecord, find_runs
from . import page as report

HOST, _DATA = "127.0.0.1", "/data.json"
_HEADERS = {
    "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
}  # fmt: skip


def status(runs: Sequence[RunRecord]) -> str:
    """How far the runs are, in a sentence."""
    going = [run for run in runs if not run.finished]
    if not going:
        return f"Finished: {len(runs)} runs." if len(runs) > 1 else "Finished."
    parts = [f"{run.label} seed {run.seed}, round {run.rounds} of {run.config.get('rounds', '?')}" for run in going]
    done = f"; {len(runs) - len(going)} finished" if len(going) < len(runs) else ""
    return f"Under way: {'; '.join(parts[:4])}{'; and more' if len(parts) > 4 else ''}{done}."


def serve(folders: Sequence[Path], port: int) -> PageServer:
    """A server of these folders' page; `serve_forever` starts it. Port 0 takes one that is free."""
    try:
        return PageServer(folders, port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise EngineError(f"Port {port} is in use or needs special rights. Choose another: --port 0 is any.") from None


class PageServer(ThreadingHTTPServer):
    """Serves one page on the loopback; its content is read again when it is asked for."""

    daemon_threads = True

    def __init__(self, folders: Sequence[Path], port: int) -> None:
        self._folders, self._lock = list(folders), threading.Lock()
        self._content = self._read()  # raises where there is no run
        super().__init__((HOST, port), _Handler)

    def content(self) -> dict[str, Any]:
        """The page's content, with a sentence on how far the runs are and a version that changes with it."""
        with self._lock:
            try:
                self._content = self._read()
            except (AdaQuantError, OSError) as error:  # a run is being resumed, or its folder was removed
                self._content = {**self._content, "status": f"This is the last that could be read: {error}"}
            text = json.dumps(self._content, sort_keys=True)
            return {**self._content, "version": hashlib.sha256(text.encode()).hexdigest()[:16]}

    def _read(self) -> dict[str, Any]:
        runs = find_runs(self._folders)
        return {**report.content(runs, self._folders[0]), "status": status(runs)}

    @property
    def address(self) -> str:
        """Where a browser on this machine finds it."""
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 20  # seconds that a connection may be silent
    server_version, sys_version = "adaquantfl", ""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if self.headers.get("Host") not in [f"{name}:{self.server.server_port}" for name in (HOST, "localhost")]:
            # Some other site's name that leads here: its page must not read ours.
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", f"Ask for {self.server.address} instead.")
        elif asked.path == "/":
            self._answer(HTTPStatus.OK, "text/html", report.render(self.server.content(), live=_DATA))
        elif asked.path != _DATA:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", f"There is only {self.server.address}.")
        elif parse_qs(asked.query).get("since") == [(content := self.server.content())["version"]]:
            self._answer(HTTPStatus.NO_CONTENT)
        else:
            self._answer(HTTPStatus.OK, "application/json", json.dumps(content, allow_nan=False))

    def _answer(self, code: HTTPStatus, kind: str = "", text: str = "") -> None:
        self.send_response(code)
        own = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(text.encode()))} if kind else {}
        for name, value in {**own, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """A request every two seconds is no news."""
