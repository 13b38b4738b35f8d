"""Where what clients keep from round to round is held: in memory up to a limit, and in mapped files above it.

With error feedback a client keeps up to three vectors of the model's length. For a thousand clients that is more than
the memory of most machines.
"""

from __future__ import annotations

import logging
import mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

IN_MEMORY_BYTES = 2**30  # of one process
_log = logging.getLogger("adaquantfl")


class Kept:
    """Holds states. folder: for the files; by default that of temporary files.

    The files have no name, so that they are gone with the process, however it ends. A file never changes: a state that
    was handed out stays as it is when the client has a newer one.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._in_memory: dict[object, int] = {}  # owner -> bytes
        self._total = 0
        self._full = False

    def put(self, owner: object, state: Any) -> Any:
        """Return an owner's new state, or array, with the arrays in files for which memory has no room."""
        self.forget(owner)
        self._in_memory[owner] = 0
        return self._put(owner, state)

    def forget(self, owner: object) -> None:
        """Note that an owner's state is held elsewhere."""
        self._total -= self._in_memory.pop(owner, 0)

    def _put(self, owner: object, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._put(owner, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._put(owner, item) for item in value]
        if not isinstance(value, np.ndarray) or not value.size or is_mapped(value):
            return value
        if self._total + value.nbytes > IN_MEMORY_BYTES and not self._full:
            try:
                return _mapped(value, self.folder)
            except OSError as error:  # the memory may still suffice
                self._full = True
                _log.warning("What clients keep stays in memory, since it cannot be written: %s.", error.strerror)
        self._in_memory[owner] += value.nbytes
        self._total += value.nbytes
        return value


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Whether an array lies in a file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


def _mapped(array: npt.NDArray[Any], folder: Path | None) -> npt.NDArray[Any]:
    with TemporaryFile(dir=folder) as file:
        np.ascontiguousarray(array).tofile(file)
        file.flush()
        return np.memmap(file, dtype=array.dtype, mode="c", shape=array.shape).view(np.ndarray)
