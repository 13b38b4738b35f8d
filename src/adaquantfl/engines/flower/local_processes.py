"""Flower's processes on this machine: quiet, in a folder of their own, and ended with us, however we end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from ...errors import EngineError

# No news to Flower's and Ray's makers about who runs what, and no look for newer versions.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

_LINES_QUOTED = 5  # of a process's output in a sentence
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_END_WITHIN = 5.0  # seconds between asking a process to end and ending it

# Linux keeps the request (1 is PR_SET_PDEATHSIG, 15 is SIGTERM) when the process becomes the command. Other systems
# have nothing like it; there a killed parent leaves its children behind.
_BECOME = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 15)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def tethered(command: Sequence[str]) -> list[str]:
    """A command that ends with the process that started it, even where that one is killed: nothing is left behind.

    To be started by the main thread: for Linux, the thread that started it is its parent.
    """
    return [sys.executable, "-c", _BECOME, *command]


class LocalProcesses:
    """A temporary folder and the processes that live in it."""

    def __init__(self) -> None:
        # Short: Ray and we keep sockets there, whose paths have at most 107 characters.
        self.path = Path(tempfile.mkdtemp(prefix="adaquantfl-"))
        self.environment = {
            **os.environ,
            **QUIET,
            "FLWR_HOME": str(self.path / "flwr"),
            "RAY_TMPDIR": str(self.path),
            "TMPDIR": str(self.path),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()
        shutil.rmtree(self.path, ignore_errors=True)

    def start(self, name: str, command: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        """Start a process; what it prints goes to a file. Ctrl-C on the terminal does not reach it."""
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                tethered(command),
                env={**self.environment, **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def alive(self, name: str) -> bool:
        return self._processes[name].poll() is None

    def finish(self, name: str, seconds: float) -> None:
        """Wait for a process that ends by itself; EngineError unless it does so, and well."""
        try:
            code = self._processes[name].wait(seconds)
        except subprocess.TimeoutExpired:
            raise EngineError(f"{name} did not end within {seconds:g} s. {self.last_words(name)}") from None
        if code != 0:
            raise EngineError(f"{name} failed (exit code {code}). {self.last_words(name)}")

    def check(self, name: str) -> None:
        """EngineError where this process has ended."""
        code = self._processes[name].poll()
        if code is not None:
            raise EngineError(f"{name} has ended (exit code {code}). {self.last_words(name)}")

    def printed(self, name: str) -> str:
        """What a process has printed, without colours."""
        return _COLOURS.sub("", self._log(name).read_text(encoding="utf-8", errors="replace"))

    def last_words(self, name: str) -> str:
        """The end of it: from the last error on, where there is one."""
        lines = [line.strip() for line in self.printed(name).splitlines() if line.strip()]
        errors = [number for number, line in enumerate(lines) if "error" in line.lower()]
        start = errors[-1] if errors else len(lines) - _LINES_QUOTED
        return "It printed: " + " | ".join(lines[max(0, start) :][:_LINES_QUOTED])

    def await_port(self, name: str, port: int, seconds: float = 60.0) -> None:
        """Wait until a process takes connections."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check(name)
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            time.sleep(0.1)
        raise EngineError(f"{name} takes no connections after {seconds:g} s. {self.last_words(name)}")

    def _log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    def _end_all(self) -> None:
        """End our processes and those that they started, which carry our folder in their environment."""
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _END_WITHIN
        while time.monotonic() < deadline and self._living():
            time.sleep(0.05)
        for pid in self._living():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()

    def _living(self) -> list[int]:
        ours = [process.pid for process in self._processes.values() if process.poll() is None]
        mark = f"FLWR_HOME={self.environment['FLWR_HOME']}".encode()
        for folder in Path("/proc").glob("[0-9]*"):  # none where the system has no /proc
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes():
                    ours.append(int(folder.name))
        return ours


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at the moment, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
