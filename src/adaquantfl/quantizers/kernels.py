"""Numba kernels of the uniform quantizer: sums of squares, maxima, random bits, and the rounding of one element."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ..intrinsics import bits_of, float_of, squares
from ..jit import INLINED, inline, kernel

WEYL = np.uint32(0x9E3779B9)  # 2^32 / golden ratio: consecutive indices are spread over the whole range
MIX_1 = np.uint32(0x7FEB352D)  # multipliers of a full-avalanche 32-bit mix
MIX_2 = np.uint32(0x846CA68B)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_TWO31 = np.float32(2.0**31)
SINGLE_LEVELS = 4_095
UNIT = 2.0**-31  # of a random number
ROW = 32  # elements whose squares are added side by side


@kernel
def square_sums(x, bounds, sums, first, last):
    """sums[p] = sum of squares of piece p, in double."""
    for p in range(first, last):
        begin, end = bounds[p], bounds[p + 1]
        behind = end - (end - begin) % ROW
        total = squares(x, begin, behind)
        for i in range(behind, end):
            total += np.float64(x[i]) * np.float64(x[i])
        sums[p] = total


@kernel
def largest_bits(bits, bounds, largest, first, last):
    """largest[p] = the largest magnitude in piece p, as the bits of a float32, which are ordered like the values.

    Infinity and NaN come last.
    """
    for p in range(first, last):
        piece = bits[bounds[p] : bounds[p + 1]]
        top = np.uint32(0)
        for i in range(len(piece)):
            size = np.uint32(piece[i] & _MAGNITUDE)
            top = size if size > top else top
        largest[p] = top


@inline
def segment_at(offsets, position):
    """The segment that holds the element at `position`; offsets: where segments start, and the dimension."""
    low, high = 0, len(offsets) - 1  # np.searchsorted takes Numba half a second to compile
    while high - low > 1:
        middle = (low + high) >> 1
        if offsets[middle] <= position:
            low = middle
        else:
            high = middle
    return low


@inline
def stream_start(index, low):
    """Where element `index` stands in the Weyl sequence of a key's low half; the next element is WEYL further on."""
    return np.uint32(np.uint32(np.uint32(index) * WEYL) + low)


@inline
def draw31(x, high):
    """31 uniform bits for the element whose place in the Weyl sequence is x."""
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) * MIX_1)
    # The key's high half enters between the multiplies: entering with the low half it would only shift the sequence.
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) ^ high)
    x = np.uint32(x * MIX_2)
    return np.int32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) >> np.uint32(1))


def magnitude(value: Any, inverse: Any, top: Any, random31: Any) -> Any:
    """The level of |value|: |value| s / norm, rounded up with probability of its fraction (eq. 5), never above s.

    Only from compiled code. The type of `inverse` and `top` decides the arithmetic: float32 up to SINGLE_LEVELS, where
    its rounding is below 1/1000 of a level, and float64 above.
    """


@overload(magnitude, jit_options=INLINED)
def _magnitude(value, inverse, top, random31):
    return _magnitude_double if inverse == types.float64 else _magnitude_single


def _magnitude_single(value, inverse, top, random31):
    t = np.float32(abs(value) * inverse)
    # To 21 significant bits: a ratio that is off a grid point only by float32 rounding is put back on it.
    t = float_of(np.uint32(np.uint32(bits_of(t) + np.uint32(4)) & np.uint32(0xFFFFFFF8)))
    t = t if t < top else top  # `min` takes Numba longer to compile
    low = np.int32(t)
    threshold = np.int32(np.float32(np.float32(t - np.float32(low)) * _TWO31))
    return np.int32(low + np.int32(random31 < threshold))


def _magnitude_double(value, inverse, top, random31):
    # A ratio just below a grid point is lifted over it; 2^-32 of a level is less than the random numbers resolve.
    t = np.float64(abs(value)) * inverse + 2.0**-32
    t = t if t < top else top
    low = np.int32(t)
    threshold = np.int32((t - low) * 2.0**31)
    return np.int32(low + np.int32(random31 < threshold))


@kernel
def quantize_pieces(x, bounds, owner, inverse, top, low, high, values, start, first, last):
    """values[i - start] = signed level of x[i], for the pieces first to last."""
    for p in range(first, last):
        inv, place = inverse[owner[p]], stream_start(bounds[p], low)
        piece = x[bounds[p] : bounds[p + 1]]  # a slice: LLVM vectorises only what cannot be a negative index
        out = values[bounds[p] - start : bounds[p + 1] - start]
        for j in range(len(piece)):
            draw = draw31(np.uint32(place + np.uint32(np.uint32(j) * WEYL)), high)
            level = magnitude(piece[j], inv, top, draw)
            out[j] = -level if piece[j] < 0 else level
