"""Numba kernels of the fixed-length code: blocks of 1024 codes, 32 lanes of 32 rows, b bits each.

Row r of lane c is element 32 r + c. Each lane packs its 32 codes, lowest bits first, into b words of 32 bits; word w
of all lanes lies side by side. Every step is then the same shift on 32 neighbouring words, which vectorises. The
elements behind the last whole block are packed one after the other.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ...jit import inline, kernel
from ...quantizers.kernels import magnitude
from ...quantizers.streams import draw31

LANES = 32
BLOCK = 1024
_ONE = np.uint32(1)


@inline
def _pack_block(codes, bits, words):
    words[:] = np.uint32(0)
    for row in range(32):
        word, shift = (row * bits) >> 5, np.uint32((row * bits) & 31)
        source = codes[row * LANES : row * LANES + LANES]
        target = words[word * LANES : word * LANES + LANES]
        for lane in range(LANES):
            target[lane] |= np.uint32(source[lane] << shift)
        if shift + bits > 32:  # the code's upper bits go to the next word
            target = words[(word + 1) * LANES : (word + 2) * LANES]
            for lane in range(LANES):
                target[lane] = np.uint32(source[lane] >> np.uint32(32 - shift))


@inline
def _unpack_block(words, bits, codes):
    mask = np.uint32((1 << bits) - 1)
    for row in range(32):
        word, shift = (row * bits) >> 5, np.uint32((row * bits) & 31)
        source = words[word * LANES : word * LANES + LANES]
        target = codes[row * LANES : row * LANES + LANES]
        if shift + bits > 32:
            upper = words[(word + 1) * LANES : (word + 2) * LANES]
            for lane in range(LANES):
                joined = np.uint32(source[lane] >> shift) | np.uint32(upper[lane] << np.uint32(32 - shift))
                target[lane] = joined & mask
        else:
            for lane in range(LANES):
                target[lane] = np.uint32(source[lane] >> shift) & mask


@kernel
def pack_levels(values, bits, words, first, last):
    """words = the codes of values, for the blocks first to last. The sign is the code's top bit."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    sign = np.uint32(bits - 1)
    per_block = LANES * bits
    for block in range(first, last):
        source = values[block * BLOCK : block * BLOCK + BLOCK]
        for j in range(BLOCK):
            value = np.int32(source[j])
            codes[j] = np.uint32(abs(value)) | np.uint32(np.uint32(value < 0) << sign)
        _pack_block(codes, bits, words[block * per_block : (block + 1) * per_block])


@kernel
def quantize_pack(x, offsets, inverse, top, low, high, bits, words, first, last):
    """Like quantizing and then packing, but the levels never leave the first-level cache."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    sign = np.uint32(bits - 1)
    per_block = LANES * bits
    segment = np.searchsorted(offsets, first * BLOCK, side="right") - 1
    for block in range(first, last):
        position, end = block * BLOCK, block * BLOCK + BLOCK
        while position < end:
            while offsets[segment + 1] <= position:
                segment += 1
            stop = min(end, offsets[segment + 1])
            inv = inverse[segment]
            base = np.uint32(position)
            source = x[position:stop]
            target = codes[position - block * BLOCK : stop - block * BLOCK]
            for j in range(len(source)):
                level = magnitude(source[j], inv, top, draw31(np.uint32(base + np.uint32(j)), low, high))
                target[j] = np.uint32(level) | np.uint32(np.uint32((source[j] < 0) & (level > 0)) << sign)
            position = stop
        _pack_block(codes, bits, words[block * per_block : (block + 1) * per_block])


@kernel
def unpack_levels(words, bits, values, first, last):
    """values = the signed levels of the blocks first to last."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    sign, mask = np.uint32(bits - 1), np.uint32((1 << (bits - 1)) - 1)
    per_block = LANES * bits
    for block in range(first, last):
        _unpack_block(words[block * per_block : (block + 1) * per_block], bits, codes)
        target = values[block * BLOCK : block * BLOCK + BLOCK]
        for j in range(BLOCK):
            level = np.int32(codes[j] & mask)
            target[j] = -level if np.uint32(codes[j] >> sign) else level


@kernel
def accumulate(words, bits, offsets, steps, total, first, last):
    """total += step of the element's segment x its signed level, for the blocks first to last."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    sign, mask = np.uint32(bits - 1), np.uint32((1 << (bits - 1)) - 1)
    per_block = LANES * bits
    segment = np.searchsorted(offsets, first * BLOCK, side="right") - 1
    for block in range(first, last):
        _unpack_block(words[block * per_block : (block + 1) * per_block], bits, codes)
        position, end = block * BLOCK, block * BLOCK + BLOCK
        while position < end:
            while offsets[segment + 1] <= position:
                segment += 1
            stop = min(end, offsets[segment + 1])
            step = steps[segment]
            source = codes[position - block * BLOCK : stop - block * BLOCK]
            target = total[position:stop]
            for j in range(len(target)):
                level = np.int32(source[j] & mask)
                level = -level if np.uint32(source[j] >> sign) else level
                target[j] += np.float32(step * np.float32(level))
            position = stop


@kernel
def largest_level(words, bits, tops, first, last):
    """tops[block] = the largest level in each of the blocks first to last."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    mask = np.uint32((1 << (bits - 1)) - 1)
    per_block = LANES * bits
    for block in range(first, last):
        _unpack_block(words[block * per_block : (block + 1) * per_block], bits, codes)
        top = np.uint32(0)
        for j in range(BLOCK):
            top = max(top, codes[j] & mask)
        tops[block] = top


@kernel
def pack_tail(values, bits, out):
    """The last, incomplete block: codes one after the other, lowest bit first."""
    out[:] = np.uint8(0)
    for i in range(len(values)):
        value = np.int64(values[i])
        code = abs(value) | (np.int64(value < 0) << (bits - 1))
        for j in range(bits):
            position = i * bits + j
            out[position >> 3] |= np.uint8(((code >> j) & 1) << (position & 7))


@kernel
def unpack_tail(data, bits, values):
    """Reads what pack_tail wrote; returns the largest level."""
    top = np.int64(0)
    for i in range(len(values)):
        code = np.int64(0)
        for j in range(bits):
            position = i * bits + j
            code |= np.int64((data[position >> 3] >> (position & 7)) & 1) << j
        level = code & ((1 << (bits - 1)) - 1)
        top = max(top, level)
        values[i] = -level if code >> (bits - 1) else level
    return top
