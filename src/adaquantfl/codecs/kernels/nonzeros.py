"""Numba kernels that find the few elements that are not zero, and put them back.

Both finders append (index, level) pairs tile by tile. They stop early when the arrays might not hold the next tile, so
that memory follows what is found. Rows without anything are passed over by one vectorised test.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ...jit import expand, inline, kernel
from ...quantizers.kernels import segment_at, stream_start
from ..frame import TILE
from .quantizing import ROW, may_hold_nonzero, quantize_row


@expand
def _append(row, start, slots, index, level, found):
    """Append what is not zero in `row`, whose first element has index `start`; without a branch an element."""
    here = np.int64(0)
    for j in range(len(row)):
        slots[here] = np.uint8(j)
        here += np.int64(row[j] != 0)
    for k in range(here):
        index[found + k] = np.uint32(start + slots[k])
        level[found + k] = row[slots[k]]
    return found + here


@kernel
def find(values, first, last, slots, counts, index, level, found):
    """Append the non-zero values of the tiles first to last; returns the tile to continue with and the new `found`.

    slots: scratch for ROW + 1 places.
    """
    for tile in range(first, last):
        tile_end = min(len(values), (tile + 1) * TILE)
        if found + (tile_end - tile * TILE) >= len(index):
            return tile, found
        before = found
        for start in range(tile * TILE, tile_end, ROW):
            row = values[start : min(start + ROW, tile_end)]
            mixed = values.dtype.type(0)
            for j in range(len(row)):
                mixed = values.dtype.type(mixed | row[j])
            if mixed != 0:
                found = _append(row, start, slots, index, level, found)
        counts[tile] = found - before
    return last, found


@kernel
def count_blocks(values, size, counts):
    """counts[i] = how many of the values size i up to size (i + 1) are not zero."""
    for i in range(len(counts)):
        block = values[i * size : (i + 1) * size]
        here = np.int32(0)
        for j in range(len(block)):
            here = np.int32(here + np.int32(block[j] != 0))
        counts[i] = here


@kernel
def quantize_find(x, offsets, inverse, top, low, high, first, last, row, rest, slots, counts, index, level, found):
    """Like quantizing and then `find`, but the levels of one row at a time are all that is written.

    row, rest: scratch for the levels of ROW elements, and for the floats of an incomplete row.
    """
    segment = segment_at(offsets, first * TILE)
    for tile in range(first, last):
        position, tile_end = tile * TILE, min(len(x), (tile + 1) * TILE)
        if found + (tile_end - position) >= len(index):
            return tile, found
        before = found
        while position < tile_end:
            while offsets[segment + 1] <= position:
                segment += 1
            end = min(tile_end, offsets[segment + 1])
            inv = inverse[segment]
            for start in range(position, end, ROW):
                place = stream_start(start, low)
                if start + ROW <= end:
                    if not may_hold_nonzero(x, start, inv, place, high):
                        continue
                    quantize_row(x, start, inv, top, place, high, row)
                else:
                    for j in range(ROW):
                        rest[j] = x[start + j] if start + j < end else np.float32(0)
                    quantize_row(rest, 0, inv, top, place, high, row)
                found = _append(row, start, slots, index, level, found)
            position = end
        counts[tile] = found - before
    return last, found


@inline
def _first_from(index, element):
    """How many entries of the sorted `index` lie before `element`."""
    low, high = 0, len(index)
    while low < high:
        middle = (low + high) >> 1
        if np.int64(index[middle]) < element:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def accumulate(index, level, offsets, steps, total, first, last):
    """total += step of the element's segment x its level, for the non-zero elements of the tiles first to last."""
    begin, end = _first_from(index, first * TILE), _first_from(index, last * TILE)
    if begin == end:
        return
    segment = segment_at(offsets, np.int64(index[begin]))
    for i in range(begin, end):
        while offsets[segment + 1] <= np.int64(index[i]):
            segment += 1
        total[index[i]] += np.float32(steps[segment] * np.float32(level[i]))
