"""Whole numbers in as few bytes as they need, which messages are made of."""

from __future__ import annotations

from ..errors import FrameError


def varint(number: int) -> bytes:
    """Little-endian base 128: seven bits a byte, the top bit set on all but the last."""
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


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
