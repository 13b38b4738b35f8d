"""Numba kernels of the uniform quantizer: sums of squares, and the stochastic rounding of one element."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ..jit import inline, kernel
from .streams import draw31

_LANES = 32
_SNAP = np.float32(2.0**-22)  # a ratio this close (relatively) to a grid point is on it, but for rounding in float32
_TWO31 = np.float32(2.0**31)


@kernel
def square_sums(x, bounds, sums, first, last):
    """sums[p] = sum of squares of piece p, in double, over 32 lanes so that the order is the same on every machine."""
    lanes = np.empty(_LANES, dtype=np.float64)
    for p in range(first, last):
        piece = x[bounds[p] : bounds[p + 1]]
        lanes[:] = 0.0
        rows = len(piece) // _LANES
        for row in range(rows):
            for lane in range(_LANES):
                value = np.float64(piece[row * _LANES + lane])
                lanes[lane] += value * value
        total = 0.0
        for lane in range(_LANES):
            total += lanes[lane]
        for i in range(rows * _LANES, len(piece)):
            total += np.float64(piece[i]) * np.float64(piece[i])
        sums[p] = total


@inline
def magnitude(value, inverse, top, random31):
    """The level of |value|: |value| s / norm, rounded up with probability of its fraction (eq. 5), never above s."""
    t = np.float32(abs(value) * inverse)
    near = np.float32(np.rint(t))
    if abs(np.float32(t - near)) <= np.float32(t * _SNAP):
        t = near
    t = min(t, top)
    low = np.int32(t)
    threshold = np.int32(np.float32(np.float32(t - np.float32(low)) * _TWO31))
    return np.int32(low + np.int32(random31 < threshold))


@kernel
def quantize_pieces(x, bounds, owner, inverse, top, low, high, values, start, first, last):
    """values[i - start] = signed level of x[i], for the pieces first to last."""
    for p in range(first, last):
        inv = inverse[owner[p]]
        base = np.uint32(bounds[p])
        piece = x[bounds[p] : bounds[p + 1]]  # a slice: LLVM vectorises only what cannot be a negative index
        out = values[bounds[p] - start : bounds[p + 1] - start]
        for j in range(len(piece)):
            level = magnitude(piece[j], inv, top, draw31(np.uint32(base + np.uint32(j)), low, high))
            out[j] = -level if piece[j] < 0 else level
