"""Numba kernels of the dense codec: a histogram of levels, and rANS with up to 64 interleaved 32-bit states.

A state x lies in [2^15, 2^31) and moves 16 bits at a time (Duda, "Asymmetric numeral systems", 2013, the range
variant). To write a symbol, x = q f + r becomes

    ((q 2^e + raw) 2^12) + start + r

The symbol's interval of 2^e symbols has f of 4096 slots, from `start` on. `raw` is the symbol's place in the interval.
Words are written forwards and read backwards. So neither side has to know beforehand how many words a vector of states
takes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ...intrinsics import bits_of, float_of
from ...jit import kernel
from ...quantizers.kernels import segment_at
from .dense_vectors import (
    BIAS_BITS,
    FLOOR_BITS,
    FREQUENCY_BITS,
    LANES,
    SCALE_BITS,
    SOME_LANES,
    WIDTH_BITS,
    WORD_BITS,
    decode_rounds,
    decode_some_rounds,
    encode_rounds,
    encode_some_rounds,
)
from .packing import ROW_OF_LEVELS, add_levels

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
_HISTOGRAMS = 4  # equal neighbours would otherwise wait for each other's store


@kernel
def histogram(values, s, counts):
    """counts[level + s] += its number in values; counts has shape (4, 2s + 1) or (1, 2s + 1). Levels are -s to s."""
    whole = 0
    if len(counts) == _HISTOGRAMS:
        whole = len(values) // _HISTOGRAMS
        a, b, c, d = counts[0], counts[1], counts[2], counts[3]
        for i in range(whole):
            four = values[_HISTOGRAMS * i : _HISTOGRAMS * i + _HISTOGRAMS]
            a[np.uint64(np.int64(four[0]) + s)] += 1
            b[np.uint64(np.int64(four[1]) + s)] += 1
            c[np.uint64(np.int64(four[2]) + s)] += 1
            d[np.uint64(np.int64(four[3]) + s)] += 1
    for value in values[_HISTOGRAMS * whole :]:
        counts[0, np.uint64(np.int64(value) + s)] += 1


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

    rows[symbol - lowest] belongs to a symbol. `words` has one for each symbol, two for each state of each chunk, and 16
    more. states, cursor: scratch for the states, LANES or fewer, and for CURSOR numbers.
    """
    p, lanes = 0, len(states)
    for chunk in range(len(sizes)):
        here, before = symbols[chunk * size : (chunk + 1) * size], p
        for lane in range(lanes):
            states[lane] = _FLOOR
        left, top = len(here) // lanes + 1, len(here)
        while left:  # the incomplete round, and all others where there are no vectors
            left -= 1
            these = here[left * lanes : top]
            for lane in range(len(these)):
                row = np.uint64(rows[np.uint64(np.int64(these[lane]) - lowest)])
                x, parameters, reciprocal = np.uint32(states[lane]), np.uint32(row >> _HALF), np.uint32(row)
                f = np.uint32(np.uint32(parameters & _FREQUENCY_MASK) + _ONE)
                parameters = np.uint32(parameters >> _FREQUENCY)
                e = np.uint32(parameters >> _BIAS)
                full = np.uint32(x >= np.uint32(f << np.uint32(_ROOM - e)))  # no branch: it could not be predicted
                words[np.uint64(p)] = np.uint16(x & _WORD_MASK)
                p += int(full)
                x = np.uint32(x >> np.uint32(full * _WORD))
                q = np.uint32(np.float32(np.float32(np.int32(x)) * float_of(reciprocal)))  # or one less
                q = np.uint32(q + np.uint32(np.uint32(x - np.uint32(q * f)) >= f))
                start = np.uint32(np.uint32(parameters & _BIAS_MASK) + np.uint32(x - np.uint32(q * f)))
                states[lane] = np.uint32(np.uint32(q << np.uint32(_SCALE + e)) + start)
            top = left * lanes
            cursor[0], cursor[1] = p, left
            if lanes == LANES:
                encode_rounds(here, lowest, rows, states, words, cursor)
            elif lanes == SOME_LANES:
                encode_some_rounds(here, lowest, rows, states, words, cursor)
            p, left = cursor[0], cursor[1]
        for lane in range(lanes):
            words[p + 2 * lane] = np.uint16(states[lane] & _WORD_MASK)
            words[p + 2 * lane + 1] = np.uint16(states[lane] >> _WORD)
        p += 2 * lanes
        sizes[chunk] = p - before


@kernel
def decode_chunks(words, edges, slots, states, cursor, symbols, size):
    """Read chunks of `size` symbols; chunk i is words[edges[i] : edges[i + 1]], at least two for each state.

    Returns how many were what was written, up to the first that was not. states, cursor: as above.
    """
    lanes = len(states)
    for chunk in range(len(edges) - 1):
        start, p = edges[chunk], edges[chunk + 1] - 2 * lanes
        mine = symbols[chunk * size : (chunk + 1) * size]
        for lane in range(lanes):
            upper = np.uint32(np.uint32(words[p + 2 * lane + 1]) << _WORD)
            states[lane] = np.uint32(upper | np.uint32(words[p + 2 * lane]))
            if states[lane] < _FLOOR or states[lane] >= _CEILING:
                return chunk
        cursor[0], cursor[1], cursor[2] = p, 0, len(mine) // lanes
        if lanes == LANES:
            decode_rounds(words, start, slots, states, mine, cursor)
        elif lanes == SOME_LANES:
            decode_some_rounds(words, start, slots, states, mine, cursor)
        p, done = cursor[0], cursor[1]
        for first in range(done * lanes, len(mine), lanes):  # what vectors could not do
            here = mine[first : first + lanes]
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
        for lane in range(lanes):
            if states[lane] != _FLOOR:
                return chunk
        if p != start:
            return chunk
    return len(edges) - 1


@kernel
def split_low(values, first, symbol_of, base, extra, symbols, words):
    """symbols = those of the values; words = what lies below a symbol, extra[symbol] bits each. Returns their number.

    symbol_of: of each level from `first` on; base: the lowest level of each symbol.
    """
    buffer, filled, p = np.uint64(0), np.uint64(0), 0
    for i in range(len(values)):
        symbol = symbol_of[values[i] - first]
        symbols[i] = symbol
        buffer |= np.uint64(np.uint64(values[i] - base[symbol]) << filled)
        filled = np.uint64(filled + np.uint64(extra[symbol]))
        if filled >= _HALF:
            words[p] = np.uint32(buffer)
            buffer, filled, p = np.uint64(buffer >> _HALF), np.uint64(filled - _HALF), p + 1
    words[p] = np.uint32(buffer)
    return 32 * p + np.int64(filled)


@kernel
def join_low(symbols, base, extra, words, values):
    """The way back; returns how many bits were read. Beyond the last word but one, the last two are read again."""
    p, at, last = 0, np.uint64(0), len(words) - 2
    for i in range(len(symbols)):
        n = np.uint64(extra[symbols[i]])
        here = np.uint64(p if p < last else last)
        both = np.uint64(np.uint64(words[here]) | np.uint64(np.uint64(words[here + np.uint64(1)]) << _HALF))
        low = np.int64(np.uint64(both >> at) & np.uint64(np.uint64(np.uint64(1) << n) - np.uint64(1)))
        values[i] = base[symbols[i]] + low
        at = np.uint64(at + n)
        if at >= _HALF:
            at, p = np.uint64(at - _HALF), p + 1
    return 32 * p + np.int64(at)


@kernel
def accumulate(values, offsets, steps, total, start, stop):
    """total += step of the element's segment x its level, for the elements start to stop."""
    segment = segment_at(offsets, start)
    position = start
    while position < stop:
        while offsets[segment + 1] <= position:
            segment += 1
        end = min(stop, offsets[segment + 1])
        step, behind = steps[segment], end - (end - position) % ROW_OF_LEVELS
        add_levels(values, position, behind, step, total)
        for i in range(behind, end):
            total[i] += np.float32(step * np.float32(values[i]))
        position = end
