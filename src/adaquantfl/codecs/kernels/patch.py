"""Numba kernels of lossless differences: floats as integers in the order of their values, and the distances between.

The integer of a float that is not negative is its bit pattern; below, the order of the patterns is turned around. Every
pattern has its own, -0.0 and NaN included, and neighbouring floats are 1 apart.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ...jit import inline, kernel


@inline
def _turned(number, top):
    """From a pattern to its integer, and back: the same function. top: the largest positive pattern."""
    return number if number >= 0 and number <= top else np.int64(top - number)


@kernel
def distances(old, new, top, found):
    """found[i] = how many floats new[i] lies above old[i]."""
    for i in range(len(old)):
        found[i] = _turned(np.int64(new[i]), top) - _turned(np.int64(old[i]), top)


@kernel
def move(bits, index, distance, sign, top):
    """Move the floats at `index` by their distances, times sign, in place.

    Returns how many were moved, fewer than all where one would leave the type's range, and the sum of their patterns.
    """
    total = np.uint64(0)
    for i in range(len(index)):
        place = index[i]
        ordered = _turned(np.int64(bits[place]), top) + sign * np.int64(distance[i])
        if ordered > top or ordered < -top - 1:
            return i, total
        pattern = _turned(ordered, top)
        bits[place] = pattern
        total += np.uint64(pattern)
    return len(index), total
