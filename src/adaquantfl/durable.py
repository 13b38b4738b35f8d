"""Files that are the old ones or the new ones, whole, whatever stops the process or the machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def write(path: Path, content: bytes | Callable[[Path], None]) -> None:
    """Replace a file. content: its bytes, or a function that writes them to the path that it is given.

    The new file is on disk before it gets its name, and its name is on disk before this returns: a power loss leaves
    one of the two as well. What was begun is removed where the disk is full.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        if isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            content(temporary)
        _sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder that stays, with those above it."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on disk."""
    _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
