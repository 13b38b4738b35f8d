"""A random rotation that both sides can make: random signs, then a Walsh-Hadamard transform, block by block.

The rotation is H D x. D is a diagonal of signs from a stream of the key's own, and H = 2^(-k/2) [[1, 1], [1,
-1]]^(k-fold Kronecker product). It is orthonormal and makes the coordinates of most vectors nearly Gaussian (Ailon and
Chazelle 2006). Nothing is padded: a segment is cut into blocks of 2^k elements, the largest first. Every block becomes
a segment with its own scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import core
from .base import Lengths
from .segments import Segments
from .streams import checked_key
from .vectors import FloatVector, float32_vector, square_sums

LARGEST_BLOCK = 65_536  # elements that are rotated together, as a rule: more do not fit a core's cache
_AT_A_TIME = 1 << 18  # elements, or one block: a whole vector's would be a second vector


def blocks(segments: Segments, largest: int = LARGEST_BLOCK) -> Segments:
    """The segments, cut into blocks of 2^k elements, `largest` at most, which is a power of two.

    >>> blocks(Segments.of([1000, 3], 1003)).lengths.tolist()
    [512, 256, 128, 64, 32, 8, 2, 1]
    """
    lengths: list[npt.NDArray[np.int64]] = []
    for length in segments.lengths.tolist():
        rest = length % largest
        lengths.append(np.full(length // largest, largest, dtype=np.int64))
        lengths.append(
            np.array([1 << k for k in reversed(range(largest.bit_length())) if rest >> k & 1], dtype=np.int64)
        )
    return Segments.of(np.concatenate(lengths), segments.dimension)


def rotate(x: npt.NDArray[np.float32], offsets: npt.NDArray[np.int64], key: int) -> npt.NDArray[np.float32]:
    """H D x of every block; x: all elements, or those from the first offset to the last."""
    return core.rotate(x, offsets, checked_key(key), forward=True)


def rotate_back(y: npt.NDArray[np.float32], offsets: npt.NDArray[np.int64], key: int) -> npt.NDArray[np.float32]:
    """D H y, which undoes `rotate`, in the memory of y: all elements, or those from the first offset to the last."""
    return core.rotate(y, offsets, checked_key(key), forward=False, out=y)


def runs(offsets: npt.NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield the first block and the one after the last, of groups with at most this many elements, or one block.

    >>> list(runs(np.array([0, 4, 6, 8, 9]), 4))
    [(0, 1), (1, 3), (3, 4)]
    """
    last = 0
    while last < len(offsets) - 1:
        first = last
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + most, "right")) - 1)
        yield first, last


@dataclass(frozen=True)
class Turned:
    """A checked vector that is to be rotated, its blocks and the root mean square of each."""

    vector: npt.NDArray[np.float32]
    parts: Segments
    rms: npt.NDArray[np.float64]
    key: int

    @staticmethod
    def of(x: FloatVector, segments: Lengths | None, key: int, largest: int = LARGEST_BLOCK) -> Turned:
        vector = float32_vector(x)
        parts = blocks(Segments.of(segments, len(vector)), largest)
        rms = np.sqrt(square_sums(vector, parts) / parts.lengths)  # which also refuses NaN: rotation would spread it
        return Turned(vector, parts, rms, checked_key(key))

    @property
    def y(self) -> npt.NDArray[np.float32]:
        """The rotated vector."""
        return rotate(self.vector, self.parts.offsets, self.key)

    def pieces(self) -> Iterator[tuple[slice, slice, npt.NDArray[np.float32]]]:
        """The rotated vector, some blocks at a time: which blocks, where their elements are, and these."""
        offsets = self.parts.offsets
        for first, last in runs(offsets, _AT_A_TIME):
            here = slice(int(offsets[first]), int(offsets[last]))
            yield slice(first, last), here, rotate(self.vector[here], offsets[first : last + 1], self.key)

    @property
    def inverse(self) -> npt.NDArray[np.float64]:
        """1 / rms; 0 for a block of zeros."""
        with np.errstate(divide="ignore"):
            return np.where(self.rms > 0, 1.0 / self.rms, 0.0)

    def scales(self, dots: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """EDEN's scale ||y||^2 / <y, c>, where c stands for y in units of the rms; dots: <y, c> / rms.

        The vector that comes back then has exactly x's length in x's direction; what is at right angles to x averages
        out over rotations.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(dots > 0, self.rms * self.parts.lengths / dots, 0.0).astype(np.float32)
