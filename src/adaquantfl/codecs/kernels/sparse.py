"""Numba kernels of the sparse code: adaptive Golomb codes for gaps, Elias gamma for the rest of large levels.

A chunk is a string of bits, lowest bit of each byte first. Writers put at most 64 bits at a bit position into 64-bit
words. Readers look at the 64 bits from a bit position on. The longest code, an escaped gap and its sign, has 53 bits.
"""

# mypy: disable-error-code="no-untyped-def, assignment"
from __future__ import annotations

import numpy as np

from ...intrinsics import floor_log2
from ...jit import expand, inline, kernel

LONGEST = 20  # ones before a gap is written out instead
_MEMORY = 4  # the running mean forgets with 1 / 2^4
_LN2 = 177  # ln 2 in 256ths: the best divisor is ln 2 x the mean (Gallager and van Voorhis 1975)
_LN2_BITS = 8
_LOW = np.uint64(63)

# Words of 64 bits that a chunk takes at most: 53 bits for a gap and its sign, 52, 52 and 33 more for a large level; two
# counts in gamma, and a word that is cleared for the codes to come.
WORDS_EACH, WORDS_BEFORE = 3, 6

# What `decode_chunk` found wrong.
FINE, RUNS_OUT, BEYOND_CHUNK, TOO_MANY, ABOVE_S, TRAILING, PADDING = range(7)


@inline
def _ones(n):
    """n ones, n < 64."""
    return np.uint64((np.uint64(1) << np.uint64(n)) - np.uint64(1))


@expand
def _put(words, position, code, length):
    """Write the low `length` bits of `code`, whose other bits are 0; returns the position behind them."""
    word, shift = position >> 6, np.uint64(position) & _LOW
    words[word] |= np.uint64(code << shift)
    # Shifted in two steps, because a shift by 64 is undefined. Also clears the next word for the codes to come.
    words[word + 1] = np.uint64(np.uint64(code >> np.uint64(1)) >> np.uint64(_LOW - shift))
    return position + length


@expand
def _look(words, position):
    """The 64 bits from `position` on."""
    word, shift = position >> 6, np.uint64(position) & _LOW
    upper = np.uint64(np.uint64(words[word + 1] << np.uint64(1)) << np.uint64(_LOW - shift))
    return np.uint64(np.uint64(words[word] >> shift) | upper)


@inline
def _width(things):
    """Bits that hold any gap among this many elements."""
    return floor_log2(2 * things - 1)  # ceil(log2(things))


@inline
def _start(things, marked):
    """The running mean before the first gap: (mean gap + 1/2) x 16, from the counts that both sides know."""
    return (((things - marked) << _MEMORY) + (marked << (_MEMORY - 1))) // marked


@inline
def _divisor(mean):
    divisor = (_LN2 * mean + (1 << (_LN2_BITS + _MEMORY - 1))) >> (_LN2_BITS + _MEMORY)
    return divisor if divisor > 1 else np.int64(1)


@inline
def _next_mean(mean, gap):
    return mean + gap - (mean >> _MEMORY)


@inline
def _gap_code(gap, mean, width):
    """Golomb code: the quotient in ones, a zero, the rest in truncated binary. Returns the code and its length."""
    divisor = _divisor(mean)
    quotient = np.int64(np.uint32(gap) // np.uint32(divisor))
    if quotient >= LONGEST:
        raw = np.uint64(gap - LONGEST * divisor)
        return np.uint64(_ones(LONGEST) | np.uint64(raw << np.uint64(LONGEST))), LONGEST + width
    bits = _width(divisor)
    rest = gap - quotient * divisor
    short = (np.int64(1) << bits) - divisor  # this many remainders take one bit less
    longer = np.int64(rest >= short)  # no branch: it could not be predicted
    high = bits - 1 if bits > 0 else np.int64(0)  # `max` takes Numba longer to compile
    both = np.int64(rest + short * longer)
    code = np.uint64((both >> longer) | ((both & longer) << high))
    return np.uint64(_ones(quotient) | np.uint64(code << np.uint64(quotient + 1))), quotient + bits + longer


@inline
def _read_gap(view, mean, width):
    """Undo `_gap_code` at the low end of `view`; returns the gap and the code's length."""
    divisor = _divisor(mean)
    stop = np.int64(~view & _ones(LONGEST)) | (np.int64(1) << LONGEST)
    quotient = floor_log2(stop & -stop)
    if quotient == LONGEST:
        return LONGEST * divisor + np.int64(np.uint64(view >> np.uint64(LONGEST)) & _ones(width)), LONGEST + width
    bits = _width(divisor)
    view = np.uint64(view >> np.uint64(quotient + 1))
    high = bits - 1 if bits > 0 else np.int64(0)
    rest = np.int64(view & _ones(high))
    short = (np.int64(1) << bits) - divisor
    both = 2 * rest + np.int64(np.uint64(view >> np.uint64(high)) & np.uint64(1)) - short
    longer = rest >= short
    rest = both if longer else rest
    rest = rest if bits > 0 else np.int64(0)
    return quotient * divisor + rest, quotient + bits + np.int64(longer)


@inline
def _put_gamma(words, position, number):
    """Elias gamma of a number from 1 on: as many ones as bits follow the top one, a zero, those bits."""
    bits = floor_log2(number)
    position = _put(words, position, _ones(bits), bits + 1)
    return _put(words, position, np.uint64(number) & _ones(bits), bits)


@inline
def _read_gamma(words, position, most):
    """Returns the number, or most + 1 where it is larger, and the position behind it."""
    stop = np.int64(~_look(words, position) & _ones(33)) | (np.int64(1) << 33)
    bits = floor_log2(stop & -stop)
    position += bits + 1
    number = np.int64(_look(words, position) & _ones(bits)) + (np.int64(1) << bits)
    return (number if number <= most else most + 1), position + bits


@kernel
def encode_chunk(index, level, start, size, places, words):
    """Write the non-zero elements `index` (sorted, start to start + size) with levels `level`; returns the bits.

    places: scratch for as many numbers as there are elements. words: WORDS_BEFORE + WORDS_EACH for each element.
    """
    words[0] = np.uint64(0)
    position, things, listed = np.int64(0), np.int64(size), len(index)
    for reach in range(1, 4):  # which elements are not zero, which of those reach 2, which of those reach 3
        marked = np.int64(0)
        for k in range(listed):
            marked += np.int64(abs(level[k if reach < 3 else places[k]]) >= reach)
        if reach > 1:
            position = _put_gamma(words, position, marked + 1)
        if marked == 0:
            return position
        mean, width, expected = _start(things, marked), _width(things), np.int64(0)
        kept = 0
        for k in range(listed):
            i = k if reach < 3 else places[k]
            if abs(level[i]) >= reach:
                at = np.int64(index[i]) - start if reach == 1 else k
                code, length = _gap_code(at - expected, mean, width)
                if reach == 1:
                    code |= np.uint64(np.uint64(level[i] < 0) << np.uint64(length))
                    length += 1
                position = _put(words, position, code, length)
                mean = _next_mean(mean, at - expected)
                expected = at + 1
                places[kept] = i
                kept += 1
        things = listed = marked
    for k in range(listed):
        position = _put_gamma(words, position, np.int64(abs(level[places[k]])) - 2)
    return position


@kernel
def least_bits(values, counts):
    """Bits that a chunk of these levels takes at least; counts[l + s]: how often level l occurs.

    A gap takes one bit at least, and two where it is not 0. Take an element with a magnitude below 3 and a larger one
    behind it. The next step leaves the first one out, so the gap before the second is not 0 there.
    """
    s, bits, larger = len(counts) // 2, np.int64(0), np.int64(0)
    for reach in range(1, s + 1):
        here = counts[s + reach] + counts[s - reach]
        bits += here * ((reach if reach < 3 else 3) + 1)
        if reach > 2:
            bits += here * (2 * floor_log2(np.int64(reach - 2)) + 1)
    before, after = values[: len(values) - 1], values[1:]
    for i in range(len(before)):
        left, right = abs(before[i]), abs(after[i])
        larger += np.int64((left < 3) & (right > left))
    return bits + larger


@kernel
def decode_chunk(words, begin, end, start, size, s, places, index, level):
    """Fill `index` and `level`, whose length is the chunk's count, from the bits begin to end. Returns what is wrong.

    Whatever the bits are: no code is looked at from beyond `end`, and `words` has two words more than it needs.
    places: scratch, as long as `index`.
    """
    position, things, marked = np.int64(begin), np.int64(size), len(index)
    for reach in range(1, 4):
        if reach > 1:
            if position >= end:
                return RUNS_OUT
            number, position = _read_gamma(words, position, np.int64(things + 1))
            marked = number - 1
        if marked > things:
            return TOO_MANY
        if marked > 0 and s < reach:
            return ABOVE_S
        mean, width, expected = _start(things, marked if marked else np.int64(1)), _width(things), np.int64(0)
        for k in range(marked):
            if position >= end:
                return RUNS_OUT
            view = _look(words, position)
            gap, length = _read_gap(view, mean, width)
            if gap >= things - expected:
                return BEYOND_CHUNK
            at = expected + gap
            if reach == 1:
                index[k] = np.uint32(start + at)
                level[k] = np.int32(-1) if np.uint64(view >> np.uint64(length)) & np.uint64(1) else np.int32(1)
                length += 1
            else:
                i = at if reach == 2 else places[at]  # at >= k: not yet overwritten
                places[k] = i
                level[i] += np.int32(1) if level[i] > 0 else np.int32(-1)
            position += length
            expected = at + 1
            mean = _next_mean(mean, gap)
        things = marked
        if marked == 0:
            break
    for k in range(things):
        if position >= end:
            return RUNS_OUT
        number, position = _read_gamma(words, position, np.int64(s - 2))
        if number > s - 2:
            return ABOVE_S
        more = np.int32(number - 1)
        i = places[k]
        level[i] += more if level[i] > 0 else -more
    # The chunk ends in the byte of its last code, whose unused bits are 0.
    if position > end:
        return RUNS_OUT
    if position + 8 <= end:
        return TRAILING
    return PADDING if _look(words, position) & _ones(end - position) else FINE
