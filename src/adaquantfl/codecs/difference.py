"""Two float32 vectors' difference, losslessly: with the old one at hand, the new one comes back bit for bit.

The bit patterns of floats, read as integers that grow with the value, differ by little where the values do. Which
elements differ, and in which direction, is a frame of levels -1, 0 and 1; by how much is one plane of bytes for each
byte of the distance, each deflated: the upper planes are almost all zero.
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
_COUNT = struct.Struct("<Q")
_PLANES = 4


def encode_difference(old: Vector, new: Vector) -> bytes:
    """What turns `old` into `new`.

    >>> old, new = np.zeros(4, dtype=np.float32), np.array([0, 1.5, 0, -2], dtype=np.float32)
    >>> apply_difference(old, encode_difference(old, new))
    array([ 0. ,  1.5,  0. , -2. ], dtype=float32)
    """
    distance = _ordered(new) - _ordered(old)
    signs = encode(Levels(np.sign(distance).astype(np.int8), np.float32(1.0), 1))
    size = np.abs(distance[distance != 0]).astype("<u4").view(np.uint8).reshape(-1, _PLANES)
    planes = [zlib.compress(np.ascontiguousarray(size[:, i]).data, 1) for i in range(_PLANES)]
    return b"".join(_COUNT.pack(len(part)) + part for part in (signs, *planes))


def apply_difference(old: Vector, difference: bytes) -> Vector:
    """`new`, given `old`; FrameError on anything malformed."""
    parts = _split(difference)
    signs = decode(parts[0], dimension=len(old)).values.astype(np.int64)
    changed = np.flatnonzero(signs)
    planes = np.empty((len(changed), _PLANES), dtype=np.uint8)
    for i, part in enumerate(parts[1:]):
        planes[:, i] = np.frombuffer(_inflate(part, len(changed)), dtype=np.uint8)
    ordered = _ordered(old)
    ordered[changed] += signs[changed] * planes.view("<u4").ravel().astype(np.int64)
    return _from_ordered(ordered)


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


def _ordered(x: Vector) -> npt.NDArray[np.int64]:
    """Integers in the order of the floats; every bit pattern has its own, -0.0 and NaN included."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)


def _from_ordered(ordered: npt.NDArray[np.int64]) -> Vector:
    bits = np.where(ordered < 0, (-ordered - 1) | -0x80000000, ordered)
    if ((bits > 0x7FFFFFFF) | (bits < -0x80000000)).any():
        raise FrameError("The difference leads beyond float32: it belongs to another vector.")
    return bits.astype(np.int32).view(np.float32)
