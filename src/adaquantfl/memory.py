"""Large arrays that are used again. Memory that is new to a process costs a page fault every 4096 bytes.

`empty` stands where `np.empty` would. Within `Memory.use` it hands out arrays of that memory; elsewhere it is
`np.empty`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import numpy as np
import numpy.typing as npt

Block = npt.NDArray[np.uint8]
LARGE = 1 << 15  # bytes: smaller arrays are left to NumPy, which gets them without new pages
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
                if array.base is block:
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


class _Bytes:
    """New `bytes` that an array can still write to: no copy of the array is needed, and no second large block."""

    def __init__(self, size: int) -> None:
        self.whole = _new_bytes(None, size)  # with anything in it
        address = _address(self.whole)
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


_new_bytes: Any = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes, _new_bytes.restype = [ctypes.c_char_p, ctypes.c_ssize_t], ctypes.py_object
_address: Any = ctypes.pythonapi.PyBytes_AsString
_address.argtypes, _address.restype = [ctypes.py_object], ctypes.c_void_p


def empty_bytes(size: int) -> npt.NDArray[np.uint8]:
    """An array that `as_bytes` makes `bytes` of, without a copy where it is large."""
    return empty(size, np.uint8) if in_use() or size < LARGE else np.asarray(_Bytes(size))


def as_bytes(array: npt.NDArray[np.uint8]) -> bytes:
    """What has been written to an array of `empty_bytes`; write no more. A view where memory is used again.

    >>> array = empty_bytes(3)
    >>> array[:] = 65
    >>> as_bytes(array)
    b'AAA'
    """
    if in_use():
        return cast(bytes, array.data.toreadonly())
    return array.base.whole if isinstance(array.base, _Bytes) else array.tobytes()


def done(array: npt.NDArray[Any]) -> None:
    """Scratch that nobody will read again: its memory is free before that of the other arrays."""
    used = _used.get()
    if used is not None:
        used[0].free(array, used[1])
