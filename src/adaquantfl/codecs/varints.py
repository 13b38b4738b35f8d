"""Whole numbers in as few bytes as they need, which headers and directories are made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import FrameError


def varint(number: int) -> bytes:
    """Little-endian base 128: seven bits a byte, the top bit set on all but the last."""
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def read_varints(view: memoryview, position: int, count: int) -> tuple[npt.NDArray[np.int64], int]:
    """Many of them at once: there can be as many as elements."""
    if count <= 4:  # few are read faster one by one
        few = np.empty(count, dtype=np.int64)
        for place in range(count):
            few[place], position = read_varint(view, position)
        return few, position
    data = np.frombuffer(view[position : position + 5 * count], dtype=np.uint8)
    ends = np.flatnonzero(data < 128)[:count]
    if len(ends) < count:
        raise FrameError("Truncated: the message ends within a number.")
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    if sizes.max() > 5 or ((data[ends] == 0) & (sizes > 1)).any():
        raise FrameError("A number is not written in one to five bytes, as few as it needs.")
    numbers = np.zeros(count, dtype=np.int64)
    for place in range(int(sizes.max())):
        here = sizes > place
        numbers[here] |= (data[starts[here] + place].astype(np.int64) & 127) << (7 * place)
    return numbers, position + int(ends[-1]) + 1


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):  # 2^32 takes five bytes
        if position >= len(view):
            raise FrameError("Truncated: the message ends within a number.")
        byte = view[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if byte == 0 and shift:
                break
            return number, position
    raise FrameError("A number is not written in one to five bytes, as few as it needs.")
