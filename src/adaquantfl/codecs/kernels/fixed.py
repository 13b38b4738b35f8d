"""Numba kernels of the fixed-length code: blocks of 1024 codes, 32 lanes of 32 rows, b bits each.

Row r of lane c is element 32 r + c. Each lane packs its 32 codes, lowest bits first, into b words of 32 bits; word w
of all lanes lies side by side. The elements behind the last whole block are packed one after the other.

Kernels that read take the number of lanes, 32, as an argument: LLVM would unroll a loop of known length instead of
vectorising it.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ...jit import inline, kernel
from ...quantizers.kernels import WEYL, draw31, magnitude, stream_start
from .widths import pack_block

LANES = 32
BLOCK = 1024
_PLACES = (np.arange(BLOCK, dtype=np.uint64) * WEYL).astype(np.uint32)  # of a block in the Weyl sequence


@inline
def _sign_magnitude(level, negative, sign):
    """The code of a level: its sign in the bit above, and no sign where the level is 0."""
    return np.uint32(level) | np.uint32(np.uint32(negative & (level > 0)) << sign)


@kernel
def pack_levels(values, width, words, first, last):
    """words = the codes of values, for the blocks first to last. The sign is the code's top bit."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    bits = len(width)
    for block in range(first, last):
        source = values[block * BLOCK : block * BLOCK + BLOCK]
        for j in range(BLOCK):
            value = np.int32(source[j])
            codes[j] = _sign_magnitude(abs(value), value < 0, np.uint32(bits - 1))
        pack_block(codes, width, words[block * LANES * bits : (block + 1) * LANES * bits])


@kernel
def quantize_pack(x, offsets, inverse, top, low, high, width, words, first, last):
    """Like quantizing and then packing, but the levels never leave the first-level cache."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    bits = len(width)
    sign = np.uint32(bits - 1)
    segment = np.searchsorted(offsets, first * BLOCK, side="right") - 1
    for block in range(first, last):
        position, end = block * BLOCK, block * BLOCK + BLOCK
        if offsets[segment + 1] >= end:  # nearly always: one segment, and a loop of known length
            inv, start = inverse[segment], stream_start(position, low)
            source = x[position:end]
            for j in range(BLOCK):
                draw = draw31(np.uint32(start + _PLACES[j]), high)
                codes[j] = _sign_magnitude(magnitude(source[j], inv, top, draw), source[j] < 0, sign)
        else:
            while position < end:
                while offsets[segment + 1] <= position:
                    segment += 1
                stop = min(end, offsets[segment + 1])
                inv, start = inverse[segment], stream_start(position, low)
                source = x[position:stop]
                target = codes[position - block * BLOCK : stop - block * BLOCK]
                for j in range(len(source)):
                    draw = draw31(np.uint32(start + np.uint32(np.uint32(j) * WEYL)), high)
                    target[j] = _sign_magnitude(magnitude(source[j], inv, top, draw), source[j] < 0, sign)
                position = stop
        pack_block(codes, width, words[block * LANES * bits : (block + 1) * LANES * bits])
        if segment + 2 < len(offsets) and offsets[segment + 1] <= end:
            segment += 1


@inline
def _place(row, bits):
    """Where a row's codes start: the word of lane 0, and the bit in it. Unsigned, so that LLVM vectorises the lanes."""
    bit = np.uint32(row) * np.uint32(bits)
    return np.uint64(bit & np.uint32(0xFFFFFFE0)), np.uint32(bit & np.uint32(31))


@inline
def _spanning(low, high, shift):
    """A code that starts in one word and ends in the next."""
    return np.uint32(low >> shift) | np.uint32(high << (np.uint32(32 - shift) & np.uint32(31)))


@inline
def _signed(code, mask):
    """The level of a code, with its sign."""
    level = np.float32(np.int32(code & mask))
    return -level if code > mask else level


@kernel
def _unpack_block(words, start, bits, lanes, codes):
    """The inverse of pack_block, for the block whose words begin at start."""
    ones = np.uint32((np.int64(1) << bits) - 1)
    for row in range(LANES):
        word, shift = _place(row, bits)
        word += np.uint64(start)
        first = np.uint64(LANES * row)
        if shift + bits <= LANES:
            for lane in range(np.uint64(lanes)):
                codes[first + lane] = np.uint32(words[word + lane] >> shift) & ones
        else:
            for lane in range(np.uint64(lanes)):
                code = _spanning(words[word + lane], words[word + np.uint64(LANES) + lane], shift)
                codes[first + lane] = code & ones


@kernel
def _add_block(words, start, bits, lanes, step, total, position):
    """total += step x signed level for the block whose words begin at start and whose elements at position."""
    ones, mask = np.uint32((np.int64(1) << bits) - 1), np.uint32((np.int64(1) << (bits - 1)) - 1)
    for row in range(LANES):
        word, shift = _place(row, bits)
        word += np.uint64(start)
        first = np.uint64(position + LANES * row)
        if shift + bits <= LANES:
            for lane in range(np.uint64(lanes)):
                code = np.uint32(words[word + lane] >> shift) & ones
                total[first + lane] += np.float32(step * _signed(code, mask))
        else:
            for lane in range(np.uint64(lanes)):
                code = _spanning(words[word + lane], words[word + np.uint64(LANES) + lane], shift) & ones
                total[first + lane] += np.float32(step * _signed(code, mask))


@kernel
def unpack_levels(words, bits, lanes, values, first, last):
    """values = the signed levels of the blocks first to last."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    sign, mask = np.uint32(bits - 1), np.uint32((1 << (bits - 1)) - 1)
    for block in range(first, last):
        _unpack_block(words, block * LANES * bits, bits, lanes, codes)
        target = values[block * BLOCK : block * BLOCK + BLOCK]
        for j in range(BLOCK):
            level = np.int32(codes[j] & mask)
            target[j] = -level if np.uint32(codes[j] >> sign) else level


@kernel
def accumulate(words, bits, lanes, offsets, steps, total, first, last):
    """total += step of the element's segment x its signed level, for the blocks first to last."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    mask = np.uint32((1 << (bits - 1)) - 1)
    segment = np.searchsorted(offsets, first * BLOCK, side="right") - 1
    for block in range(first, last):
        start, position, end = block * LANES * bits, block * BLOCK, block * BLOCK + BLOCK
        if offsets[segment + 1] >= end:
            _add_block(words, start, bits, lanes, steps[segment], total, position)
        else:
            _unpack_block(words, start, bits, lanes, codes)
            while position < end:
                while offsets[segment + 1] <= position:
                    segment += 1
                stop = min(end, offsets[segment + 1])
                step = steps[segment]
                source = codes[position - block * BLOCK : stop - block * BLOCK]
                target = total[position:stop]
                for j in range(len(target)):
                    target[j] += np.float32(step * _signed(source[j], mask))
                position = stop
        if segment + 2 < len(offsets) and offsets[segment + 1] <= end:
            segment += 1


@kernel
def largest_level(words, bits, lanes, tops, first, last):
    """tops[block] = the largest level in each of the blocks first to last."""
    codes = np.empty(BLOCK, dtype=np.uint32)
    mask = np.uint32((1 << (bits - 1)) - 1)
    for block in range(first, last):
        _unpack_block(words, block * LANES * bits, bits, lanes, codes)
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
