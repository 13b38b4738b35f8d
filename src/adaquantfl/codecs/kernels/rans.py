"""Numba kernels of the wide dense body: rANS with 64 interleaved 32-bit states.

A state x lies in [2^15, 2^31) and moves 16 bits at a time. To write a symbol, x = q f + r becomes
((q 2^e + raw) 2^12) + start + r, as in `dense.py`. Words are written forwards and read backwards. So neither side has
to know beforehand how many words a vector of states takes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ...intrinsics import bits_of, float_of
from ...jit import kernel
from .rans_vectors import (
    BIAS_BITS,
    FLOOR_BITS,
    FREQUENCY_BITS,
    LANES,
    SCALE_BITS,
    WIDTH_BITS,
    WORD_BITS,
    decode_rounds,
    encode_rounds,
)

STATE_WORDS = 2 * LANES
FLOOR = 1 << FLOOR_BITS  # every state starts here, and so ends here when it is read back
MOST_WIDTH = FLOOR_BITS - SCALE_BITS  # of an interval: a state then needs one word at most
CURSOR = 3  # numbers that a kernel keeps about where it is

_FLOOR, _CEILING = np.uint32(FLOOR), np.uint32(FLOOR << WORD_BITS)
_WORD, _WORD_MASK = np.uint32(WORD_BITS), np.uint32((1 << WORD_BITS) - 1)
_SCALE, _SLOT_MASK = np.uint32(SCALE_BITS), np.uint32((1 << SCALE_BITS) - 1)
_ROOM = np.uint32(FLOOR_BITS + WORD_BITS - SCALE_BITS)
_FREQUENCY, _FREQUENCY_MASK = np.uint32(FREQUENCY_BITS), np.uint32((1 << FREQUENCY_BITS) - 1)
_BIAS, _BIAS_MASK = np.uint32(BIAS_BITS), np.uint32((1 << BIAS_BITS) - 1)
_WIDTH, _WIDTH_MASK = np.uint32(WIDTH_BITS), np.uint32((1 << WIDTH_BITS) - 1)
_HALF = np.uint64(32)
_ONE = np.uint32(1)
_ROUNDED_DOWN = np.float32(1 - 2.0**-22)


@kernel
def rows_of(table, lowest, rows):
    """What encode_chunks takes for each symbol; table: lowest symbols of intervals, their widths and frequencies."""
    start = np.int64(0)
    for i in range(table.shape[1]):
        e, f = table[1, i], table[2, i]
        reciprocal = bits_of(np.float32(np.float32(np.float32(1) / np.float32(f)) * _ROUNDED_DOWN))
        for raw in range(1 << e):
            bias = start + (raw << SCALE_BITS)
            parameters = np.uint64((f - 1) | bias << FREQUENCY_BITS | e << (FREQUENCY_BITS + BIAS_BITS))
            rows[table[0, i] + raw - lowest] = np.uint64(np.uint64(parameters << _HALF) | np.uint64(reciprocal))
        start += f


@kernel
def encode_chunks(symbols, size, lowest, rows, states, cursor, words, sizes):
    """Write chunks of `size` symbols to `words`, one behind the other; sizes[i]: how many words chunk i took.

    rows[symbol - lowest] belongs to a symbol. `words` has one for each symbol, STATE_WORDS for each chunk, and 16 more.
    states, cursor: scratch for LANES states and CURSOR numbers.
    """
    p = 0
    for chunk in range(len(sizes)):
        here, before = symbols[chunk * size : (chunk + 1) * size], p
        for lane in range(LANES):
            states[lane] = _FLOOR
        left, top = len(here) // LANES + 1, len(here)
        while left:  # the incomplete round, and all others where there are no vectors
            left -= 1
            for i in range(left * LANES, top):
                row = np.uint64(rows[np.uint64(np.int64(here[i]) - lowest)])
                x, parameters, reciprocal = np.uint32(states[i - left * LANES]), np.uint32(row >> _HALF), np.uint32(row)
                f = np.uint32(np.uint32(parameters & _FREQUENCY_MASK) + _ONE)
                parameters = np.uint32(parameters >> _FREQUENCY)
                e = np.uint32(parameters >> _BIAS)
                full = np.uint32(x >= np.uint32(f << np.uint32(_ROOM - e)))  # no branch: it could not be predicted
                words[p] = np.uint16(x & _WORD_MASK)
                p += int(full)
                x = np.uint32(x >> np.uint32(full * _WORD))
                q = np.uint32(np.float32(np.float32(np.int32(x)) * float_of(reciprocal)))  # or one less
                q = np.uint32(q + np.uint32(np.uint32(x - np.uint32(q * f)) >= f))
                start = np.uint32(np.uint32(parameters & _BIAS_MASK) + np.uint32(x - np.uint32(q * f)))
                states[i - left * LANES] = np.uint32(np.uint32(q << np.uint32(_SCALE + e)) + start)
            top = left * LANES
            cursor[0], cursor[1] = p, left
            encode_rounds(here, lowest, rows, states, words, cursor)
            p, left = cursor[0], cursor[1]
        for lane in range(LANES):
            words[p + 2 * lane] = np.uint16(states[lane] & _WORD_MASK)
            words[p + 2 * lane + 1] = np.uint16(states[lane] >> _WORD)
        p += STATE_WORDS
        sizes[chunk] = p - before


@kernel
def decode_chunks(words, edges, slots, states, cursor, symbols, size):
    """Read chunks of `size` symbols; chunk i is words[edges[i] : edges[i + 1]], at least STATE_WORDS.

    Returns how many were what was written, up to the first that was not. states, cursor: as above.
    """
    for chunk in range(len(edges) - 1):
        start, p = edges[chunk], edges[chunk + 1] - STATE_WORDS
        mine = symbols[chunk * size : (chunk + 1) * size]
        for lane in range(LANES):
            upper = np.uint32(np.uint32(words[p + 2 * lane + 1]) << _WORD)
            states[lane] = np.uint32(upper | np.uint32(words[p + 2 * lane]))
            if states[lane] < _FLOOR or states[lane] >= _CEILING:
                return chunk
        cursor[0], cursor[1], cursor[2] = p, 0, len(mine) // LANES
        decode_rounds(words, start, slots, states, mine, cursor)
        p, done = cursor[0], cursor[1]
        for first in range(done * LANES, len(mine), LANES):  # what vectors could not do
            here = mine[first : first + LANES]
            for lane in range(len(here) - 1, -1, -1):
                x = np.uint32(states[lane])
                slot = np.uint64(slots[np.uint64(x & _SLOT_MASK)])
                interval, share = np.int32(np.uint32(slot >> _HALF)), np.uint32(slot)
                e = np.uint32(np.uint32(interval) & _WIDTH_MASK)
                rest = np.uint32(x >> _SCALE)
                q = np.uint32(rest >> e)
                raw = np.int32(np.uint32(rest - np.uint32(q << e)))
                here[lane] = np.int32(interval >> np.int32(WIDTH_BITS)) + raw
                x = np.uint32(np.uint32(np.uint32(share & _WORD_MASK) * q) + np.uint32(share >> _WORD))
                empty = np.uint32(x < _FLOOR)
                p -= int(empty)
                word = np.uint32(words[np.uint64(p if p > start else start)])
                states[lane] = np.uint32(np.uint32(x << np.uint32(empty * _WORD)) | np.uint32(empty * word))
            if p < start:
                return chunk
        for lane in range(LANES):
            if states[lane] != _FLOOR:
                return chunk
        if p != start:
            return chunk
    return len(edges) - 1
