"""Numba kernels that choose, write and read the dense codec's table: most of what a short vector takes."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

import numpy as np

from ...jit import inline, kernel
from .dense import FLOOR, SCALE_BITS

SLOTS = 1 << SCALE_BITS
MOST_BYTES = 9  # of an interval in the table: a run's three numbers and its frequency
_ENTRY_BITS = 12.0  # about what that costs
_STATE_BITS = FLOOR.bit_length() - 1
_TOP = np.uint64(1 << 63)

# What `read` found wrong.
TRUNCATED, NUMBER, WIDTH, COUNT, FREQUENCY = -1, -2, -3, -4, -5


@kernel
def entropy(counts):
    """The entropy of levels with this histogram, in bits."""
    total, bits = np.int64(0), 0.0
    for i in range(len(counts)):
        total += counts[i]
    for i in range(len(counts)):
        if counts[i]:
            bits += counts[i] * math.log2(total / counts[i])
    return bits


@inline
def _cost(elements, e, total, price):
    """Bits that an interval of 2^e levels costs. A rare one has a slot of its own too, which the others then lack."""
    if elements == 0:
        return 0.0
    slot, some = total / SLOTS, float(elements)
    large = some if some > slot else slot
    return some * (e + math.log2(total / large)) + price * (_ENTRY_BITS + (large - some) / math.log(2.0))


@inline
def _shares(elements, widths, rests, frequencies):
    """Shares of the slots in proportion to `elements`, at least 1 each; whole numbers by largest remainder.

    Returns the bits that all elements take with them. rests: scratch for as many numbers.
    """
    slots, total = SLOTS, np.int64(0)
    for i in range(len(elements)):
        total += elements[i]
        rests[i] = 0
    more = True
    while more:  # what a rare interval has too much is taken from all others
        more, left, rest = False, slots, total
        for i in range(len(elements)):
            if rests[i] == 0 and elements[i] * slots < total:
                rests[i], left, rest, more = -1, left - 1, rest - elements[i], True
        slots, total = left, rest
    missing, step = slots, np.int64(1)
    for i in range(len(elements)):
        frequencies[i] = 1
        if rests[i] == 0:
            frequencies[i], rests[i] = elements[i] * slots // total, elements[i] * slots % total
            missing -= frequencies[i]
    while step < total:
        step *= 2
    limit = np.int64(0)  # the largest remainder that `missing` of them reach
    while step > 0:
        reached = 0
        for i in range(len(elements)):
            reached += int(rests[i] >= limit + step)
        limit += step if reached >= missing else 0
        step //= 2
    for i in range(len(elements)):
        missing -= int(rests[i] > limit)
    bits = 0.0
    for i in range(len(elements)):
        at = int(rests[i] == limit and missing > 0)  # the first of those that are equal
        missing -= at
        frequencies[i] += int(rests[i] > limit) + at
        bits += elements[i] * (widths[i] + SCALE_BITS - math.log2(frequencies[i]))
    return bits


@kernel
def shares(elements, widths, rests, frequencies):
    """`_shares` alone."""
    return _shares(elements, widths, rests, frequencies)


@kernel
def choose(counts, widest, scratch, table):
    """Cut the levels into aligned intervals of 2^e. table[:, i]: lowest level, width e, share of the slots.

    An interval costs its elements' bits and its place in the table. From single levels upwards, two neighbours become
    one interval where that is cheaper. Where there are too many for the slots, places become dearer. Returns how many
    there are, and the bits that all levels take. scratch: of shape (3, 4 s + 2); table has two rows more, for `shares`.
    """
    inside, costs, best = scratch[0], scratch[1], scratch[2]
    s, total, first, last = len(counts) // 2, np.int64(0), np.int64(len(counts)), np.int64(0)
    for i in range(len(counts)):
        if counts[i] > 0:
            first, last, total = (i if i < first else first), i, total + counts[i]
    half, price, found = np.int64(1), 1.0, SLOTS + 1
    while half <= s - first or half <= last - s:
        half *= 2
    while found > SLOTS:
        low, high = first - s + half, last - s + half
        for i in range(2 * half):
            best[i] = -1  # no interval begins here
        for i in range(low, high + 1):
            inside[i] = counts[i + s - half]
            costs[i] = _cost(inside[i], 0, total, price)
            best[i] = 0 if inside[i] else -1
        for e in range(1, widest + 1):
            if 1 << e > 2 * half:
                break
            for i in range(low >> 1, (high >> 1) + 1):  # in place: 2 i is not before i
                elements, least = 0.0, 0.0
                for j in range(2 * i, 2 * i + 2):
                    if low <= j <= high:
                        elements += inside[j]
                        least += costs[j]
                whole, lowest = _cost(elements, e, total, price), (i << e) - half
                if whole < least and lowest >= -s and lowest + (1 << e) <= s + 1:
                    best[lowest + half] = e  # what begins within it is passed over below
                    least = whole
                inside[i], costs[i] = elements, least
            low, high = low >> 1, high >> 1
        found, i = 0, np.int64(0)
        while i < 2 * half and found <= SLOTS:
            size = 1
            if best[i] >= 0:
                size = 1 << np.int64(best[i])
                if found < SLOTS:
                    table[0, found], table[1, found], table[3, found] = i - half, np.int64(best[i]), 0
                    for j in range(i + s - half, i + s - half + size):
                        table[3, found] += counts[j]
                found += 1
            i += size
        price *= 4
    return found, _shares(table[3, :found], table[1, :found], table[4, :found], table[2, :found])


@inline
def _put(out, position, number):
    while number >= 128:
        out[position] = number & 127 | 128
        number >>= 7
        position += 1
    out[position] = number
    return position + 1


@kernel
def write(table, s, out, index, rows):
    """Write the table to `out`, and what encode_tile takes to `index` and `rows`; returns the bytes of the table.

    With x = q f + r, the state ((q 2^e + raw) 2^12) + start + r is x + q gain + (level 2^12 + bias) modulo 2^64. q is
    the upper half of x times a rounded-up 2^(64 + shift) / f: exact for x < 2^63.
    """
    lowest, widths, frequencies = table[0], table[1], table[2]
    position, level, run, start = 0, np.int64(-s), 0, np.int64(0)
    for i in range(len(lowest)):
        e, f = widths[i], frequencies[i]
        if run == 0:  # another run of adjacent intervals of one width
            end = lowest[i]
            while i + run < len(lowest) and lowest[i + run] == end and widths[i + run] == e:
                end += 1 << e
                run += 1
            position = _put(out, position, lowest[i] - level)
            position = _put(out, position, e)
            position = _put(out, position, run)
            level = end
        position = _put(out, position, f)
        run -= 1
        behind = lowest[i + 1] if i + 1 < len(lowest) else lowest[i] + (1 << e)
        for j in range(lowest[i], behind):
            index[j - lowest[0]] = i
        gain, bias, digits = (1 << SCALE_BITS + e) - f, start - (lowest[i] << SCALE_BITS), 0
        while 1 << digits < f:
            digits += 1
        row = rows[i]
        row.limit, row.gain = f << _STATE_BITS - SCALE_BITS - e, gain
        if f > 1:
            rest = np.int64(_TOP % np.uint64(f)) << digits
            row.reciprocal = np.uint64(_TOP // np.uint64(f) << np.uint64(digits)) + np.uint64((rest + f - 1) // f)
            row.bias, row.shift = np.uint64(bias), digits - 1
        else:  # 2^64 does not fit; with one less the quotient is x - 1
            row.reciprocal, row.bias, row.shift = np.uint64(2**64 - 1), np.uint64(bias + gain), 0
        start += f
    return position


@inline
def _get(body, position):
    """A number of one to three bytes, in as few as it needs, and the position behind it; or what is wrong with it."""
    number = np.int64(0)
    for k in range(3):
        if position >= len(body):
            return np.int64(TRUNCATED), position
        byte = np.int64(body[position])
        position += 1
        number |= (byte & 127) << (7 * k)
        if byte < 128:
            return (number if byte or k == 0 else np.int64(NUMBER)), position
    return np.int64(NUMBER), position


@kernel
def read(body, s, widest, seen, table):
    """Fill table[:, i] with lowest level, width and frequency; returns the number of intervals, or what is wrong.

    seen: where in the body the table begins, and at last ends; then a run's width, its count, and its first level.
    """
    found, left, level = 0, SLOTS, np.int64(-s)
    while left > 0:
        skip, seen[0] = _get(body, seen[0])
        if skip < 0:
            return skip
        level += skip
        if seen[0] >= len(body):
            return np.int64(TRUNCATED)
        e = np.int64(body[seen[0]])
        count, seen[0] = _get(body, seen[0] + 1)
        if count < 0:
            return count
        seen[1], seen[2], seen[3] = e, count, level
        if e > widest:
            return np.int64(WIDTH)
        if count < 1 or count > left or level + (count << e) > s + 1:
            return np.int64(COUNT)
        for _ in range(count):
            f, seen[0] = _get(body, seen[0])
            if f < 0:
                return f
            if f == 0 or f > left:
                return np.int64(FREQUENCY)
            table[0, found], table[1, found], table[2, found] = level, e, f
            found, level, left = found + 1, level + (1 << e), left - f
    return np.int64(found)


@kernel
def slots(table, width_bits, out):
    """What reading takes, for each slot: frequency, place among its interval's (16 bits each), the interval."""
    lowest, widths, frequencies, start = table[0], table[1], table[2], 0
    for i in range(len(lowest)):
        here = np.uint64(np.uint64(np.int64(lowest[i] << width_bits | widths[i]) << 32) | np.uint64(frequencies[i]))
        mine = out[start : start + frequencies[i]]
        for place in range(len(mine)):
            mine[place] = np.uint64(here + np.uint64(np.uint64(place) << np.uint64(16)))
        start += frequencies[i]
