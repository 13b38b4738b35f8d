"""Large arrays that are used again. Memory that is new to a process costs a page fault every 4096 bytes.

`empty` stands where `np.empty` would. Within `Memory.use` it hands out arrays of that memory; elsewhere it is
`np.empty`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

Block = npt.NDArray[np.uint8]
LARGE = 1 << 14  # bytes: smaller arrays are left to NumPy
_ROOM = 4  # a block that is this many times too large is left for others
_used: ContextVar[tuple[Memory, list[Block]] | None] = ContextVar("adaquantfl_memory", default=None)


class Memory:
    """Blocks that arrays are made of. They are free again when they are given back, and are kept until the object goes.

    >>> memory = Memory()
    >>> with memory.use() as taken:
    ...     first = empty(100_000, np.uint8)
    >>> memory.give_back(taken)
    >>> with memory.use():
    ...     second = empty(20_000, np.float32)  # about as many bytes
    >>> np.shares_memory(first, second)
    True
    """

    def __init__(self) -> None:
        self._free: list[Block] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return Memory, ()  # a copy has memory of its own

    @contextmanager
    def use(self) -> Iterator[list[Block]]:
        """Make `empty` take from here; yields the blocks that it has taken."""
        taken: list[Block] = []
        token = _used.set((self, taken))
        try:
            yield taken
        except BaseException:
            self.give_back(taken)
            raise
        finally:
            _used.reset(token)

    def give_back(self, blocks: list[Block]) -> None:
        """Nobody uses the arrays of these blocks any more; the list is empty afterwards."""
        with self._lock:
            self._free += blocks
            blocks.clear()

    def take(self, size: int, taken: list[Block]) -> Block:
        """A block of at least `size` bytes: the smallest that is free, or a new one with an eighth to spare."""
        with self._lock:
            fitting = [i for i, block in enumerate(self._free) if size <= len(block) <= _ROOM * size]
            if fitting:
                block = self._free.pop(min(fitting, key=lambda i: len(self._free[i])))
            else:
                block = np.empty(size + size // 8, dtype=np.uint8)
            taken.append(block)
        return block

    def free(self, array: npt.NDArray[Any], taken: list[Block]) -> None:
        """Give the block of one array back, if it is one of those that were taken."""
        with self._lock:
            for place, block in enumerate(taken):
                if array.ctypes.data == block.ctypes.data:
                    self._free.append(taken.pop(place))
                    return


def in_use() -> bool:
    """Whether arrays come from a memory that will be used again."""
    return _used.get() is not None


def empty(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of `count` elements with anything in them.

    >>> empty(3, np.int8).shape
    (3,)
    """
    kind, used = np.dtype(dtype), _used.get()
    size = int(count) * kind.itemsize
    if used is None or size < LARGE:
        return np.empty(count, dtype=kind)
    memory, taken = used
    return memory.take(size, taken)[:size].view(kind)


def done(array: npt.NDArray[Any]) -> None:
    """Scratch that nobody will read again: its memory is free before that of the other arrays."""
    used = _used.get()
    if used is not None:
        used[0].free(array, used[1])
