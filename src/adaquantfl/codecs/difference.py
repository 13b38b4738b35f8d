"""Two float32 vectors' difference, losslessly: with the old one at hand, the new one comes back bit for bit.

The bit patterns of floats, read as integers that grow with the value, differ by little where the values do. A frame of
levels -1, 0 and 1 says which elements differ, and in which direction. The distances are one plane of bytes for each of
their bytes, deflated: the upper planes are almost all zero.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..quantizers.levels import Levels
from .coding import decode, encode

Vector = npt.NDArray[np.float32]
Ordered = npt.NDArray[np.int32]
_COUNT = struct.Struct("<Q")
_PLANES = 4
_RANGE = np.iinfo(np.int32)


def encode_difference(old: Vector, new: Vector) -> bytes:
    """What turns `old` into `new`.

    >>> old, new = np.zeros(4, dtype=np.float32), np.array([0, 1.5, 0, -2], dtype=np.float32)
    >>> apply_difference(old, encode_difference(old, new))
    array([ 0. ,  1.5,  0. , -2. ], dtype=float32)
    """
    before, after = (_turned(np.ascontiguousarray(x, dtype=np.float32).view(np.int32)) for x in (old, new))
    index = np.flatnonzero(before != after)
    distance = after[index].astype(np.int64) - before[index]
    signs = np.zeros(len(before), dtype=np.int8)
    signs[index] = np.sign(distance)
    size = np.abs(distance).astype("<u4").view(np.uint8).reshape(-1, _PLANES)
    planes = [zlib.compress(np.ascontiguousarray(size[:, i]).data, 1) for i in range(_PLANES)]
    return b"".join(_COUNT.pack(len(part)) + part for part in (encode(Levels(signs, np.float32(1.0), 1)), *planes))


def apply_difference(old: Vector, difference: bytes) -> Vector:
    """`new`, given `old`; FrameError on anything malformed."""
    new = np.array(old, dtype=np.float32)
    frame, *parts = _split(difference)
    signs = decode(frame, len(new)).values
    index = np.flatnonzero(signs)
    planes = np.empty((len(index), _PLANES), dtype=np.uint8)
    for i, part in enumerate(parts):
        planes[:, i] = np.frombuffer(_inflate(part, len(index)), dtype=np.uint8)
    patterns = new.view(np.int32)
    moved = _turned(patterns[index]) + signs[index] * planes.view("<u4").ravel().astype(np.int64)
    if len(moved) and not _RANGE.min <= moved.min() <= moved.max() <= _RANGE.max:
        raise FrameError("The difference leads beyond float32: it belongs to another vector.")
    patterns[index] = _turned(moved.astype(np.int32))
    return new


def _turned(patterns: Ordered) -> Ordered:
    """From bit patterns to integers in the order of the floats, and back: the same function.

    Every pattern has its own, -0.0 and NaN included, and neighbouring floats are 1 apart.
    """
    return patterns ^ (patterns >> 31 & _RANGE.max)


def _split(difference: bytes) -> list[bytes]:
    parts, position = [], 0
    for _ in range(1 + _PLANES):
        start = position + _COUNT.size
        if start > len(difference):
            raise FrameError("Truncated: a difference has five parts.")
        (length,) = _COUNT.unpack_from(difference, position)
        position = start + length
        parts.append(difference[start:position])
    if position != len(difference):
        raise FrameError(f"A difference of {position:,} bytes by its own account has {len(difference):,}.")
    return parts


def _inflate(part: bytes, size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plane = inflater.decompress(part, size or 1)
    except zlib.error as error:
        raise FrameError(f"A plane of the difference cannot be inflated: {error}.") from None
    if len(plane) != size or inflater.unconsumed_tail:
        raise FrameError(f"A plane of the difference has not the {size:,} bytes that it must have.")
    return plane
