"""Which processes there are: for tests that start some and want none left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def children(pid: int) -> list[int]:
    """The living children of a process."""
    return _living("parent", pid)


def in_session(pid: int) -> list[int]:
    """The living processes of the session that a process leads, or led."""
    return _living("session", pid)


def _living(relation: str, pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # gone since
            continue
        if int({"parent": parent, "session": session}[relation]) == pid and state != "Z":
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
