"""Which processes there are, and waiting for them: for tests that start some and want none left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

HANG_SECONDS = 900  # a busy machine takes less; only something that hangs takes more


def children(pid: int) -> list[int]:
    """The living children of a process, without multiprocessing's own, which stays as long as the process."""
    return _living("parent", pid)


def in_session(pid: int) -> list[int]:
    """The living processes of the session that a process leads, or led."""
    return _living("session", pid)


def _living(relation: str, pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            command = stat.with_name("cmdline").read_bytes()
        except OSError:  # gone since
            continue
        related = int({"parent": parent, "session": session}[relation]) == pid
        if related and state != "Z" and b"multiprocessing.resource_tracker" not in command:
            found.append(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    """Whether a process is there; one that ended and waits for its parent to notice is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for something that must happen soon."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{seconds:g} s passed without this: {what}"
        time.sleep(0.05)
