"""Numba kernels of the dense codec: a histogram of levels, and rANS with four interleaved 64-bit states.

A state x lies in [2^31, 2^63) and moves 32 bits at a time (Duda, "Asymmetric numeral systems", 2013, the range
variant). To write a level, x = q f + r becomes

    ((q 2^e + raw) 2^12) + start + r

The level's interval of 2^e levels has f of 4096 slots, from `start` on. `raw` is the level's place in the interval.
Each step is free of branches and of division; four independent states hide its latency.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from ...intrinsics import high_product
from ...jit import inline, kernel
from ...quantizers.kernels import segment_at
from .packing import ROW_OF_LEVELS, add_levels

SCALE_BITS = 12  # the table of 4096 slots fills the first-level cache
LANES = 4
STATE_WORDS = 2 * LANES
FLOOR = 1 << 31  # every state starts here, and so ends here when it is read back
CEILING = 1 << 63

# What writing a level of one interval takes: Table.for_writing.
ROW = np.dtype([("limit", "<u4"), ("gain", "<u4"), ("reciprocal", "<u8"), ("bias", "<u8"), ("shift", "<u8")])
# What reading a slot takes: `place` is the slot's place among its interval's; `interval` is lowest level x 32 + e.
SLOT = np.dtype([("frequency", "<u2"), ("place", "<u2"), ("interval", "<i4")])

_FLOOR, _CEILING = np.uint64(FLOOR), np.uint64(CEILING)
_SCALE, _MASK = np.uint64(SCALE_BITS), np.uint64((1 << SCALE_BITS) - 1)
_WORD = np.uint64(32)
_ONE = np.uint64(1)
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


@inline
def _put(x, p, level, row, out):
    """Write a level: state, next free word (downwards) -> the same afterwards."""
    out[p] = np.uint32(x)  # kept only where the state is too large to take the level
    upper = np.uint64(x >> _WORD)
    full = upper >= np.uint64(row.limit)
    x = upper if full else x
    quotient = np.uint64(high_product(x, row.reciprocal) >> row.shift)
    start = np.uint64(row.bias + np.uint64(np.uint64(level) << _SCALE))
    return np.uint64(np.uint64(x + start) + np.uint64(quotient * np.uint64(row.gain))), np.uint64(p - np.uint64(full))


@kernel
def encode_tile(values, lowest, index, rows, states, out):
    """Write the levels to the end of `out` and return where they start. `out` has a word for each, and STATE_WORDS + 1.

    rows[index[level - lowest]] belongs to a level. Written backwards, because rANS reads last what was written first.
    states: scratch for one of each lane.
    """
    for lane in range(LANES):
        states[lane] = _FLOOR
    p = np.uint64(len(out) - 1)
    rounds = len(values) // LANES
    rest = values[rounds * LANES :]
    for lane in range(len(rest) - 1, -1, -1):
        level = np.int64(rest[lane])
        states[lane], p = _put(states[lane], p, level, rows[index[np.uint64(level - lowest)]], out)
    x0, x1, x2, x3 = states[0], states[1], states[2], states[3]  # written out, so that they stay in registers
    for i in range(rounds - 1, -1, -1):
        four = values[LANES * i : LANES * i + LANES]
        level = np.int64(four[3])
        x3, p = _put(x3, p, level, rows[index[np.uint64(level - lowest)]], out)
        level = np.int64(four[2])
        x2, p = _put(x2, p, level, rows[index[np.uint64(level - lowest)]], out)
        level = np.int64(four[1])
        x1, p = _put(x1, p, level, rows[index[np.uint64(level - lowest)]], out)
        level = np.int64(four[0])
        x0, p = _put(x0, p, level, rows[index[np.uint64(level - lowest)]], out)
    states[0], states[1], states[2], states[3] = x0, x1, x2, x3
    start = np.int64(p) + 1 - STATE_WORDS
    for lane in range(LANES):
        out[start + 2 * lane] = np.uint32(states[lane])
        out[start + 2 * lane + 1] = np.uint32(states[lane] >> _WORD)
    return start


@inline
def _take(x, p, words, slots):
    """Read a level: state, next word -> level, state, next word. For any x in range the new state is in range again."""
    slot = slots[x & _MASK]
    x = np.uint64(x >> _SCALE)
    interval = np.int64(slot.interval)
    e = np.uint64(interval & np.int64(31))
    raw = np.int64(x & np.uint64(np.uint64(_ONE << e) - _ONE))
    x = np.uint64(np.uint64(np.uint64(slot.frequency) * np.uint64(x >> e)) + np.uint64(slot.place))
    empty = x < _FLOOR
    refilled = np.uint64(np.uint64(x << _WORD) | np.uint64(words[p]))
    x = refilled if empty else x
    return np.int64(np.int64(interval >> np.int64(5)) + raw), x, np.uint64(p + np.uint64(empty))


@kernel
def decode_tile(words, start, slots, states, values):
    """Read len(values) levels from words[start:] and return where they end, or -1 where they are not what was written.

    `words` ends with LANES words that belong to no tile. states: scratch for one of each lane.
    """
    for lane in range(LANES):
        upper = np.uint64(np.uint64(words[start + 2 * lane + 1]) << _WORD)
        states[lane] = np.uint64(upper | np.uint64(words[start + 2 * lane]))
        if states[lane] < _FLOOR or states[lane] >= _CEILING:
            return np.int64(-1)
    p = np.uint64(start + STATE_WORDS)
    last = np.uint64(len(words) - LANES)  # a round reads at most a word a lane
    rounds = len(values) // LANES
    x0, x1, x2, x3 = states[0], states[1], states[2], states[3]
    for i in range(rounds):
        if p > last:
            return np.int64(-1)
        four = values[LANES * i : LANES * i + LANES]
        four[0], x0, p = _take(x0, p, words, slots)
        four[1], x1, p = _take(x1, p, words, slots)
        four[2], x2, p = _take(x2, p, words, slots)
        four[3], x3, p = _take(x3, p, words, slots)
    if p > last:
        return np.int64(-1)
    states[0], states[1], states[2], states[3] = x0, x1, x2, x3
    rest = values[rounds * LANES :]
    for lane in range(len(rest)):
        rest[lane], states[lane], p = _take(states[lane], p, words, slots)
    for lane in range(LANES):
        if states[lane] != _FLOOR:
            return np.int64(-1)
    return np.int64(p)


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
