"""A random rotation that both sides can make: random signs, then a Walsh-Hadamard transform, block by block.

The rotation is H D x. D is a diagonal of signs from the stream, and H = 2^(-k/2) [[1, 1], [1, -1]]^(k-fold Kronecker
product). It is orthonormal and makes the coordinates of most vectors nearly Gaussian (Ailon and Chazelle 2006). Nothing
is padded: a segment is cut into blocks of 2^k elements, the largest first. Every block becomes a segment with its own
scale.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..jit import inline, kernel
from ..threads import over_ranges
from .base import Lengths
from .kernels import WEYL, draw31, stream_start
from .segments import Segments
from .streams import split_key
from .vectors import FloatVector, float32_vector, square_sums

SIGNS = (
    0x6A09E667BB67AE85  # the signs' stream is that of key XOR this (the roots of 2 and 3), apart from the rounding's
)
LARGEST_BLOCK = 65_536  # elements that are rotated together, as a rule: more do not fit a core's cache
_SMALLEST = 4  # blocks a thread takes at least


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


def rotate(x: npt.NDArray[np.float32], segments: Segments, key: int) -> npt.NDArray[np.float32]:
    """H D x of every segment, each of which is a block."""
    return _turn(x, segments, key, forward=True)


def rotate_back(y: npt.NDArray[np.float32], offsets: npt.NDArray[np.int64], key: int) -> npt.NDArray[np.float32]:
    """D H y, which undoes `rotate`."""
    return _turn(y, Segments(offsets), key, forward=False)


@dataclass(frozen=True)
class Turned:
    """A checked vector, rotated, its blocks and the root mean square of each."""

    y: npt.NDArray[np.float32]
    parts: Segments
    rms: npt.NDArray[np.float64]

    @staticmethod
    def of(x: FloatVector, segments: Lengths | None, key: int, largest: int = LARGEST_BLOCK) -> Turned:
        vector = float32_vector(x)
        parts = blocks(Segments.of(segments, len(vector)), largest)
        rms = np.sqrt(square_sums(vector, parts) / parts.lengths)  # which also refuses NaN: rotation would spread it
        return Turned(rotate(vector, parts, key), parts, rms)

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


def _turn(x: npt.NDArray[np.float32], segments: Segments, key: int, forward: bool) -> npt.NDArray[np.float32]:
    low, high = split_key(int(key) ^ SIGNS)
    out = np.empty_like(x)

    def work(first: int, last: int) -> None:
        turn_blocks(x, segments.offsets, low, high, forward, out, first, last)

    over_ranges(work, segments.count, _SMALLEST)
    return out


@kernel
def turn_blocks(x, offsets, low, high, forward, out, first, last):
    """out = H D x or D H x, for the blocks first to last."""
    for b in range(first, last):
        source, target = x[offsets[b] : offsets[b + 1]], out[offsets[b] : offsets[b + 1]]
        factor = np.float32(1.0 / np.sqrt(np.float64(len(source))))  # first: no sum can then leave float32
        for j in range(len(source)):
            target[j] = source[j] * factor
        if forward:
            _flip_signs(target, stream_start(offsets[b], low), high)
        _hadamard(target)
        if not forward:
            _flip_signs(target, stream_start(offsets[b], low), high)


@inline
def _flip_signs(v, place, high):
    for j in range(len(v)):
        draw = draw31(np.uint32(place + np.uint32(np.uint32(j) * WEYL)), high)
        v[j] = -v[j] if draw >> np.int32(30) else v[j]


@inline
def _hadamard(v):
    """The transform in place, without its factor: pairs at distance 1, 2, 4, ... become their sum and difference."""
    size, h = len(v), 1
    while 4 * h <= size:  # two distances in one pass over the memory
        for start in range(0, size, 4 * h):
            a, b = v[start : start + h], v[start + h : start + 2 * h]
            c, d = v[start + 2 * h : start + 3 * h], v[start + 3 * h : start + 4 * h]
            for j in range(h):
                ab, cd, a_b, c_d = a[j] + b[j], c[j] + d[j], a[j] - b[j], c[j] - d[j]
                a[j], b[j], c[j], d[j] = ab + cd, a_b + c_d, ab - cd, a_b - c_d
        h *= 4
    if h < size:
        a, b = v[:h], v[h : 2 * h]
        for j in range(h):
            a[j], b[j] = a[j] + b[j], a[j] - b[j]
