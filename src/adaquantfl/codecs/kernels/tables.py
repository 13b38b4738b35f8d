"""Numba kernels that choose, write and read the dense codec's table: most of what a short vector takes."""

# mypy: disable-error-code="no-untyped-def, assignment"
from __future__ import annotations

import math

import numpy as np

from ...jit import kernel
from .dense_vectors import SCALE_BITS, WIDTH_BITS

SLOTS = 1 << SCALE_BITS
WIDEST = 16  # bits: an interval of 2^16 levels
MOST_BYTES = 9  # of an interval in the table: a run's three numbers and its frequency
_ENTRY_BITS = 12.0  # about what that costs
_LN2 = math.log(2.0)

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


@kernel
def intervals(counts, widest, price, inside, costs, best, table):
    """Cut the levels into aligned intervals of 2^e. table[:, i]: lowest level, width e, (share,) elements.

    An interval costs its elements' bits and its place in the table. A rare one has a slot of its own too, which the
    others then lack. From single levels upwards, two neighbours become one interval where that is cheaper. Returns how
    many there are, or more than SLOTS. price: how dear a place is. inside, costs, best: scratch for 4 s + 2 numbers.
    """
    s, total, half = len(counts) // 2, np.int64(0), np.int64(1)
    for i in range(len(counts)):
        if counts[i] > 0:
            total += counts[i]
            while half <= i - s or half <= s - i:
                half *= 2
    slot = total / SLOTS
    for e in range(widest + 1):
        for i in range(2 * half >> e):  # in place: 2 i is not before i
            lowest = (i << e) - half
            fits = lowest >= -s and lowest + (1 << e) <= s + 1
            if e > 0:
                elements = inside[2 * i] + inside[2 * i + 1]
                least = costs[2 * i] + costs[2 * i + 1]
            else:
                elements = float(counts[lowest + s]) if fits else 0.0
                least = np.inf if elements > 0 else 0.0
                best[i] = -1  # no interval begins here
            if elements > 0 and fits:
                large = elements if elements > slot else slot
                bits = elements * (e + math.log2(total / large))
                whole = bits + price * (_ENTRY_BITS + (large - elements) / _LN2)
                if whole < least:
                    best[lowest + half] = e  # what begins within it is passed over below
                    least = whole
            inside[i] = elements
            costs[i] = least
    found, end = -1, np.int64(0)
    for i in range(2 * half):
        if i >= end and best[i] >= 0:
            found += 1
            if found == SLOTS:
                break
            table[0, found] = i - half
            table[1, found] = best[i]
            table[3, found] = 0
            end = i + (1 << np.int64(best[i]))
        if i < end:
            table[3, found] += counts[i - half + s]
    return found + 1


@kernel
def shares(table, count):
    """table[2, i], i < count: shares of the slots in proportion to the elements, at least 1 each, by largest remainder.

    table[3]: the elements, 2^32 in all at most. table[4]: zeros, and then what remains; -1 where an interval is rare.
    Returns the bits that all elements take.
    """
    slots, total, more = SLOTS, np.int64(0), True
    for i in range(count):
        total += table[3, i]
    while more:  # what a rare interval has too much is taken from all others
        more = False
        left, rest = slots, total
        for i in range(count):
            if table[4, i] == 0 and table[3, i] * slots < total:
                table[4, i] = -1
                left -= 1
                rest -= table[3, i]
                more = True
        slots, total = left, rest
    missing = slots
    for i in range(count):
        share = np.int64(1)
        if table[4, i] == 0:
            share = table[3, i] * slots // total
            table[4, i] = table[3, i] * slots - share * total
            missing -= share
        table[2, i] = share
    step, limit, above = np.int64(1) << 32, np.int64(0), np.int64(0)
    while step > 0:  # `limit` becomes the largest remainder that at least `missing` of them reach
        reached = np.int64(0)
        for i in range(count):
            reached += table[4, i] >= limit + step
        if reached < missing:
            above = reached
        else:
            limit += step
        step >>= 1
    missing -= above
    bits = 0.0
    for i in range(count):
        if table[4, i] > limit:
            table[2, i] += 1
        elif table[4, i] == limit and missing > 0:
            table[2, i] += 1
            missing -= 1
        bits += table[3, i] * (table[1, i] + SCALE_BITS - math.log2(table[2, i]))
    return bits


@kernel
def write(table, s, out):
    """Write the table, MOST_BYTES for an interval at most; returns its bytes."""
    count, level = table.shape[1], np.int64(-s)
    position, run, field, i = 0, 0, 0, 0
    while i < count:  # a run of adjacent intervals of one width: levels skipped, width, how many, frequencies
        if field == 0:
            number = table[0, i] - level
            level = table[0, i]
            while i + run < count and table[0, i + run] == level and table[1, i + run] == table[1, i]:
                level += 1 << table[1, i]
                run += 1
        elif field == 1:
            number = table[1, i]
        elif field == 2:
            number = np.int64(run)
        else:
            number = table[2, i]
            i += 1
            run -= 1
        if field < 3 or run == 0:
            field = (field + 1) & 3
        while number >= 128:
            out[position] = number & 127 | 128
            number >>= 7
            position += 1
        out[position] = number
        position += 1
    return position


@kernel
def read(body, s, seen, table):
    """Fill table[:, i] with lowest level, width and frequency; returns the number of intervals, or what is wrong.

    seen: where in the body the table begins, and at last ends; then a run's first level, its width and its count.
    """
    found, left, level, run = np.int64(0), SLOTS, np.int64(-s), np.int64(0)
    field, number, shift = 0, np.int64(0), 0
    position = seen[0]
    while left > 0 or run > 0:
        if position >= len(body):
            return np.int64(TRUNCATED)
        byte = np.int64(body[position])
        position += 1
        number |= (byte & 127) << shift
        if byte > 127 and field != 1:  # a width is one byte, whatever it is
            shift += 7
            if shift > 14:
                return np.int64(NUMBER)
            continue
        if byte == 0 and shift > 0:
            return np.int64(NUMBER)
        if field == 0:
            level += number
        elif field < 3:
            seen[1] = level
            seen[field + 1] = byte if field == 1 else number
        if field == 1 and byte > WIDEST:
            return np.int64(WIDTH)
        if field == 2:
            run = number
            if run < 1 or run > left or level + (run << seen[2]) > s + 1:
                return np.int64(COUNT)
        if field == 3:
            if number < 1 or number > left:
                return np.int64(FREQUENCY)
            table[0, found] = level
            table[1, found] = seen[2]
            table[2, found] = number
            found += 1
            run -= 1
            left -= number
            level += 1 << seen[2]
        if field < 3 or run == 0:
            field = (field + 1) & 3
        number, shift = np.int64(0), 0
    seen[0] = position
    return found


@kernel
def slots(table, out):
    """What reading takes, for each slot: frequency, place among its interval's (16 bits each), the interval."""
    start = 0
    for i in range(table.shape[1]):
        here = (table[0, i] << WIDTH_BITS | table[1, i]) << 32 | table[2, i]
        for place in range(table[2, i]):
            out[start] = here + (place << 16)
            start += 1
