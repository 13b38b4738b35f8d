"""Numba kernels of the fixed-length code: blocks of 1024 codes, 32 lanes of 32 rows, b bits each.

Row r of lane c is element 32 r + c. Each lane packs its 32 codes, lowest bits first, into b words of 32 bits; word w
of all lanes lies side by side. The elements behind the last whole block are packed one after the other, into bytes.

What differs between segments is kept for each element of a block: then one loop does for any segments.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ...jit import inline, kernel
from ...quantizers.kernels import segment_at, stream_start
from .packing import LANES, add_block, largest_code, pack_block, unpack_block
from .quantizing import quantize_block

BLOCK = 1024


@inline
def _write_tail(codes, size, bits, tail):
    """The codes of an incomplete block one after the other, lowest bit first."""
    pending, filled, position = np.uint64(0), 0, 0
    for i in range(size):
        pending |= np.uint64(codes[i]) << np.uint64(filled)
        filled += bits
        while filled >= 8 or (i == size - 1 and filled > 0):
            tail[position] = np.uint8(pending)
            pending >>= np.uint64(8)
            filled -= 8
            position += 1


@kernel
def pack_levels(values, bits, codes, words, tail, first, last):
    """The codes of values, for the blocks first to last, into words and tail. The sign is the code's top bit.

    codes: scratch for a block.
    """
    sign = np.uint32(1 << (bits - 1))
    for block in range(first, last):
        source = values[block * BLOCK : (block + 1) * BLOCK]
        for j in range(len(source)):
            value = np.int32(source[j])
            codes[j] = np.uint32(-value) | sign if value < 0 else np.uint32(value)
        if len(source) == BLOCK:
            pack_block(codes, bits, words, block * LANES * bits)
        else:
            _write_tail(codes, len(source), bits, tail)


@inline
def _spread(numbers, offsets, segment, block, each):
    """each[j] = the number of the segment of element j of the block.

    segment: one that does not start behind the block. Returns that of the last element, and how far `each` is right:
    where one segment holds the whole block, for the next blocks too.
    """
    start = block * BLOCK
    end = start + len(each) if start + len(each) < offsets[-1] else offsets[-1]
    position = start
    while position < end:
        while offsets[segment + 1] <= position:
            segment += 1
        stop = offsets[segment + 1] if offsets[segment + 1] < end else end
        for j in range(position - start, stop - start):
            each[j] = numbers[segment]
        position = stop
    return segment, offsets[segment + 1] if offsets[segment] <= start else end


@kernel
def quantize_pack(x, offsets, inverse, top, low, high, bits, rest, codes, each, words, tail, first, last):
    """Like quantizing and then packing, but the levels never leave the first-level cache.

    rest: the elements behind the last whole block, and zeros up to a block. codes, each: scratch for a block.
    """
    segment, until = segment_at(offsets, first * BLOCK), -1
    for block in range(first, last):
        if until < (block + 1) * BLOCK:
            segment, until = _spread(inverse, offsets, segment, block, each)
        start = stream_start(block * BLOCK, low)
        left = len(x) - block * BLOCK
        if left >= BLOCK:
            quantize_block(x, block * BLOCK, each, top, start, high, bits, codes)
            pack_block(codes, bits, words, block * LANES * bits)
        else:
            quantize_block(rest, 0, each, top, start, high, bits, codes)
            _write_tail(codes, left, bits, tail)


@kernel
def unpack_levels(words, bits, codes, values, first, last):
    """values = the signed levels of the blocks first to last."""
    sign, mask = np.uint32(bits - 1), np.uint32((1 << (bits - 1)) - 1)
    for block in range(first, last):
        unpack_block(words, block * LANES * bits, bits, codes)
        target = values[block * BLOCK : block * BLOCK + BLOCK]
        for j in range(BLOCK):
            level = np.int32(codes[j] & mask)
            target[j] = -level if np.uint32(codes[j] >> sign) else level


@kernel
def accumulate(words, bits, offsets, steps, each, total, first, last):
    """total += step of the element's segment x its signed level, for the blocks first to last."""
    segment, until = segment_at(offsets, first * BLOCK), -1
    for block in range(first, last):
        if until < (block + 1) * BLOCK:
            segment, until = _spread(steps, offsets, segment, block, each)
        add_block(words, block * LANES * bits, bits, each, total, block * BLOCK)


@kernel
def largest_level(words, bits, tops, first, last):
    """tops[block] = the largest level in each of the blocks first to last."""
    for block in range(first, last):
        tops[block] = largest_code(words, block * LANES * bits, bits)


@kernel
def unpack_tail(data, bits, values):
    """Reads the bytes of an incomplete block; returns the largest level."""
    top, pending, filled, position = np.int64(0), np.uint64(0), 0, 0
    mask = np.uint64((np.int64(1) << (bits - 1)) - 1)
    for i in range(len(values)):
        while filled < bits:
            pending |= np.uint64(data[position]) << np.uint64(filled)
            filled += 8
            position += 1
        level = np.int64(pending & mask)
        top = level if level > top else top
        values[i] = -level if np.uint64(pending >> np.uint64(bits - 1)) & np.uint64(1) else level
        pending >>= np.uint64(bits)
        filled -= bits
    return top
