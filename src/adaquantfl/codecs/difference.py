"""Two arrays' difference, losslessly: with the old one at hand, the new one comes back bit for bit.

The bit patterns of floats, read as integers that grow with the value, differ by little where the values do. `Moves` are
the elements that differ, and by how many floats. Where distances are small, they are the levels of one frame. In
general a frame of levels -1, 0 and 1 says which elements differ, and in which direction. The distances are one plane of
bytes for each of their bytes, deflated: the upper planes are almost all zero.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import core
from ..errors import FrameError
from ..quantizers.levels import Levels, level_dtype
from .coding import encode, levels_of
from .frame import FLOAT32, read_frame

Vector = npt.NDArray[np.float32]
_COUNT = struct.Struct("<Q")
_PLANES = 4
_FEW = 8  # fewer than one element in this many are few


@dataclass(frozen=True)
class Moves:
    """The elements that differ, in order, and how many floats further the new value of each lies.

    dimension: of the whole vector.
    """

    index: npt.NDArray[Any]
    distance: npt.NDArray[Any]
    dimension: int

    @staticmethod
    def between(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> Moves:
        """From bit patterns, as uint16 or uint32, to others."""
        return Moves(*core.differ(old, new), len(old))

    @staticmethod
    def of_frame(frame: bytes, dimension: int) -> Moves:
        """From a frame whose levels are the distances; FrameError on anything malformed."""
        parsed = read_frame(frame, dimension)
        if parsed.header.quantizer == FLOAT32:
            raise FrameError("The frame of a difference carries float32 values, not levels.")
        if parsed.header.codec == core.SPARSE:
            return Moves(*core.nonzeros(frame, parsed.facts), dimension)
        values = levels_of(parsed).values
        index = np.flatnonzero(values)
        return Moves(index, values[index], dimension)

    def levels(self, distance: npt.NDArray[Any], largest: int) -> Levels:
        """These numbers, one for each move, as the levels of the whole vector."""
        values = np.zeros(self.dimension, dtype=level_dtype(largest))
        values[self.index] = distance
        return Levels(values, np.float32(1.0), largest)

    def apply(self, bits: npt.NDArray[Any], back: bool = False) -> int:
        """Move the floats with these patterns, in place; returns the sum of those that were moved.

        FrameError, and the patterns as they were, where one would leave the range of its type.
        """
        return core.move(bits, self.index, self.distance, -1 if back else 1)


def distance_frame(moves: Moves) -> bytes:
    """A frame whose levels are the distances, which a 16-bit type keeps below 2^16."""
    largest = int(np.abs(moves.distance).max(initial=1))
    # Where few elements differ, the gaps between them are coded: that is read fastest.
    few = _FEW * len(moves.index) < moves.dimension
    return encode(moves.levels(moves.distance, largest), "sparse" if few else "auto")


def encode_distances(moves: Moves) -> bytes:
    """Signs as a frame, and the bytes of the distances in planes."""
    signs = encode(moves.levels(np.sign(moves.distance), 1))
    size = np.abs(moves.distance).astype("<u4").view(np.uint8).reshape(-1, _PLANES)
    planes = [zlib.compress(np.ascontiguousarray(size[:, i]).data, 1) for i in range(_PLANES)]
    return b"".join(_COUNT.pack(len(part)) + part for part in (signs, *planes))


def read_distances(data: bytes, dimension: int) -> Moves:
    """The way back; FrameError on anything malformed."""
    parts = _split(data)
    signs = Moves.of_frame(parts[0], dimension)
    planes = np.empty((len(signs.index), _PLANES), dtype=np.uint8)
    for i, part in enumerate(parts[1:]):
        planes[:, i] = np.frombuffer(_inflate(part, len(signs.index)), dtype=np.uint8)
    return Moves(signs.index, signs.distance * planes.view("<u4").ravel().astype(np.int64), dimension)


def encode_difference(old: Vector, new: Vector) -> bytes:
    """What turns `old` into `new`.

    >>> old, new = np.zeros(4, dtype=np.float32), np.array([0, 1.5, 0, -2], dtype=np.float32)
    >>> apply_difference(old, encode_difference(old, new))
    array([ 0. ,  1.5,  0. , -2. ], dtype=float32)
    """
    return encode_distances(Moves.between(_bits(old), _bits(new)))


def apply_difference(old: Vector, difference: bytes) -> Vector:
    """`new`, given `old`; FrameError on anything malformed."""
    new = np.array(old, dtype=np.float32)
    read_distances(difference, len(new)).apply(new.view(np.uint32))
    return new


def _bits(x: Vector) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)


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
