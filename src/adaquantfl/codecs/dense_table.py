"""The dense codec's table: which interval of 2^e levels has which share of the 4096 slots.

`LevelTable.of` chooses it for a histogram, `to_bytes` and `read` are its wire form, `for_writing` and `for_reading` are
the shapes that the kernels take.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..threads import over_ranges
from .frame import TILE
from .kernels import dense as kernels
from .kernels.dense import ROW, SCALE_BITS, SLOT
from .varints import read_varints, varint

_SLOTS = 1 << SCALE_BITS
MOST_WIDTH = 16  # bits: an interval of 2^16 levels
TILES_EACH = 2  # tiles a thread takes at least
_FEW = 16  # numbers: that many are written and read one by one
_ENTRY_BITS = 12.0  # about what an interval costs in the table

Counts = npt.NDArray[np.int64]


def histogram(values: npt.NDArray[np.signedinteger], s: int) -> Counts:
    """How often each level occurs: element l + s counts level l. No level may be outside -s to s.

    >>> histogram(np.array([1, 0, -2, 1], dtype=np.int8), s=2).tolist()
    [1, 0, 1, 2, 0]
    """
    parts: list[Counts] = []

    def work(first: int, last: int) -> None:
        mine = values[first * TILE : last * TILE]
        counts = np.zeros((4 if len(mine) > 4 * s else 1, 2 * s + 1), dtype=np.uint32)
        kernels.histogram(mine, s, counts)
        parts.append(counts.sum(axis=0, dtype=np.int64))

    over_ranges(work, -(-len(values) // TILE), TILES_EACH)
    total: Counts = np.sum(parts, axis=0)
    return total


def entropy_bytes(counts: Counts) -> float:
    """The entropy of levels with this histogram."""
    present = counts[counts > 0]
    return float(-np.sum(present * np.log2(present / present.sum()))) / 8


@dataclass(frozen=True)
class LevelTable:
    """Disjoint intervals of levels, ascending: `lowest` up to lowest + 2^width - 1 has `frequency` of the slots."""

    lowest: npt.NDArray[np.int64]
    widths: npt.NDArray[np.int64]
    frequencies: npt.NDArray[np.int64]

    @staticmethod
    def of(counts: Counts, widest: int = MOST_WIDTH) -> tuple[LevelTable, float]:
        """The table for a histogram, and the bits that the histogram's levels take with it."""
        price = 1.0
        while True:
            lowest, widths, inside = _cheapest_intervals(counts, price, widest)
            if len(lowest) <= _SLOTS:
                break
            price *= 4
        frequencies = shares(inside)
        content = float((inside * (widths + SCALE_BITS - np.log2(frequencies))).sum())
        return LevelTable(lowest, widths, frequencies), content

    @property
    def largest(self) -> int:
        """The largest magnitude of a level that the table can express, at least 1."""
        return max(1, -int(self.lowest[0]), int(self.lowest[-1]) + (1 << int(self.widths[-1])) - 1)

    def to_bytes(self, s: int) -> bytes:
        """Runs of adjacent intervals of one width: levels skipped, width, how many, their frequencies."""
        ends = self.lowest + (1 << self.widths)
        breaks = (self.lowest[1:] != ends[:-1]) | (self.widths[1:] != self.widths[:-1])
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(ends)]
        out, position = bytearray(), -s
        for a, b in pairwise(edges):
            out += varint(int(self.lowest[a]) - position) + bytes([int(self.widths[a])]) + varint(b - a)
            out += varints(self.frequencies[a:b])
            position = int(ends[b - 1])
        return bytes(out)

    @staticmethod
    def read(reader: Reader, s: int, widest: int = MOST_WIDTH) -> LevelTable:
        """The reverse of to_bytes; the table ends where the frequencies add up to 4096."""
        lowest: list[int] = []
        widths: list[int] = []
        frequencies: list[int] = []
        position, left = -s, _SLOTS
        while left:
            position += reader.varint()
            width, count = reader.byte(), reader.varint()
            if width > widest:
                raise FrameError(f"The table has an interval of 2^{width} levels; 2^{widest} is the limit.")
            if not 1 <= count <= left or position + (count << width) > s + 1:
                raise FrameError(f"The table has {count:,} intervals of 2^{width} levels at {position}, with s = {s}.")
            given = reader.varints(count)
            if min(given) < 1 or sum(given) > left:
                raise FrameError(f"The table's frequencies have a zero or add up to more than {_SLOTS}.")
            lowest += range(position, position + (count << width), 1 << width)
            widths += [width] * count
            frequencies += given
            position, left = position + (count << width), left - sum(given)
        as_array = [np.array(column, dtype=np.int64) for column in (lowest, widths, frequencies)]
        return LevelTable(*as_array)

    def for_reading(self) -> npt.NDArray[np.void]:
        """Each slot's interval, as decode_tile takes it."""
        slots = np.empty(_SLOTS, dtype=SLOT)
        starts = np.cumsum(self.frequencies) - self.frequencies
        slots["frequency"] = np.repeat(self.frequencies, self.frequencies)
        slots["place"] = np.arange(_SLOTS) - np.repeat(starts, self.frequencies)
        slots["interval"] = np.repeat(self.lowest * 32 + self.widths, self.frequencies)
        return slots

    def for_writing(self) -> tuple[int, npt.NDArray[np.uint16], npt.NDArray[np.void]]:
        """The lowest level, the interval of each level from there on, and each interval's ROW.

        With x = q f + r, the state ((q 2^e + raw) 2^12) + start + r is x + q gain + (level 2^12 + bias) modulo 2^64.
        q is the upper half of x times a rounded-up 2^(64 + shift) / f: exact for x < 2^63.
        """
        rows = np.zeros(len(self.lowest), dtype=ROW)
        start = 0
        columns = (self.lowest.tolist(), self.widths.tolist(), self.frequencies.tolist())
        for i, (lowest, width, f) in enumerate(zip(*columns, strict=True)):
            gain = (1 << SCALE_BITS + width) - f
            bias = start - (lowest << SCALE_BITS)
            digits = (f - 1).bit_length()
            if f > 1:
                reciprocal, shift = -(-(1 << 63 + digits) // f), digits - 1
            else:  # 2^64 does not fit; with one less the quotient is x - 1
                reciprocal, shift, bias = (1 << 64) - 1, 0, bias + gain
            rows[i] = (f << 31 - SCALE_BITS - width, gain, reciprocal, bias % 2**64, shift)
            start += f
        end = int(self.lowest[-1]) + (1 << int(self.widths[-1]))
        index = np.repeat(np.arange(len(rows), dtype=np.uint16), np.diff(np.append(self.lowest, end)))
        return int(self.lowest[0]), index, rows


def _cheapest_intervals(counts: Counts, price: float, widest: int) -> tuple[Counts, Counts, Counts]:
    """Cut the levels into aligned intervals of 2^e: lowest levels, widths e, and how many elements are inside.

    An interval costs its elements' bits and its place in the table; from single levels upwards, two neighbours become
    one interval where that is cheaper. `price` is how dear a place is.
    """
    s, total = len(counts) // 2, int(counts.sum())
    used = np.flatnonzero(counts)
    reach = int(max(s - used[0], used[-1] - s))
    half = 1 << reach.bit_length()
    inside = [np.zeros(2 * half, dtype=np.int64)]
    inside[0][half - reach : half + reach + 1] = counts[s - reach : s + reach + 1]
    for _ in range(min(widest, half.bit_length())):
        inside.append(inside[-1][::2] + inside[-1][1::2])
    sizes = [len(level) for level in inside]
    costs = _costs(np.concatenate(inside), np.repeat(np.arange(len(sizes)), sizes), total, price)
    cheapest, place, joined = costs[: sizes[0]], sizes[0], [inside[0] > 0]
    for e in range(1, len(sizes)):
        whole, halves = costs[place : place + sizes[e]], cheapest[::2] + cheapest[1::2]
        place += sizes[e]
        better = whole < halves
        outside = (half - s + (1 << e) - 1) >> e  # intervals that begin below -s; as many end above s, or one more
        if outside > 0:
            better[:outside] = False
        better[max((half + s + 1) >> e, 0) :] = False
        joined.append(better)
        cheapest = np.where(better, whole, halves)
    found = []
    undecided = np.ones(len(inside[-1]), dtype=np.bool_)
    for e in range(len(inside) - 1, -1, -1):
        here = np.flatnonzero(undecided & joined[e])
        found.append(((here << e) - half, np.full(len(here), e), inside[e][here]))
        undecided = np.repeat(undecided & ~joined[e], 2)
    lowest, widths, elements = (np.concatenate(column).astype(np.int64) for column in zip(*found, strict=True))
    order = np.argsort(lowest)
    return lowest[order], widths[order], elements[order]


def _costs(inside: Counts, e: Counts, total: int, price: float) -> npt.NDArray[np.float64]:
    """Bits that intervals of 2^e levels cost. A rare one has a slot of its own too, which the others then lack."""
    costs, some = np.zeros(len(inside)), np.flatnonzero(inside)
    elements, slot = inside[some].astype(np.float64), total / _SLOTS
    bits = elements * (e[some] + np.log2(total / np.maximum(elements, slot)))
    costs[some] = bits + price * (_ENTRY_BITS + np.maximum(slot - elements, 0.0) / np.log(2.0))
    return costs


def shares(elements: Counts) -> npt.NDArray[np.int64]:
    """Shares of the 4096 slots in proportion to `elements`, at least 1 each; whole numbers by largest remainder."""
    rare = np.zeros(len(elements), dtype=np.bool_)
    while True:  # what a rare interval has too much is taken from all others
        slots, total = _SLOTS - int(rare.sum()), int(elements[~rare].sum())
        more = ~rare & (elements * slots < total)
        if not more.any():
            break
        rare |= more
    found, rest = np.divmod(elements * slots, total)
    found[rare], rest[rare] = 1, -1
    found[np.argsort(-rest, kind="stable")[: _SLOTS - int(found.sum())]] += 1
    return found


def varints(numbers: Counts) -> bytes:
    """Numbers below 2^14 one after the other.

    >>> varints(np.array([1, 128])) == varint(1) + varint(128)
    True
    """
    if len(numbers) <= _FEW:
        return b"".join(map(varint, numbers.tolist()))
    both = np.stack([numbers & 127 | (numbers >= 128) << 7, numbers >> 7], axis=1).astype(np.uint8)
    return both[np.stack([numbers >= 0, numbers >= 128], axis=1)].tobytes()


class Reader:
    """Reads the bytes in front of the streams."""

    def __init__(self, body: npt.NDArray[np.uint8]) -> None:
        self.body, self.position = body, 0

    def byte(self) -> int:
        if self.position >= len(self.body):
            raise FrameError("Truncated: the body ends within its table.")
        self.position += 1
        return int(self.body[self.position - 1])

    def varint(self) -> int:
        """A number below 2^21, in as few bytes as it needs."""
        number = 0
        for shift in (0, 7, 14):
            byte = self.byte()
            number |= (byte & 127) << shift
            if byte < 128:
                if byte == 0 and shift:
                    break
                return number
        raise FrameError("A number of the table is not written in one to three bytes, as few as it needs.")

    def varints(self, count: int) -> list[int]:
        """Several of them; many are read together."""
        if count <= _FEW:
            return [self.varint() for _ in range(count)]
        numbers, self.position = read_varints(self.body.data, self.position, count)
        if numbers.max() >= 1 << 21:
            raise FrameError("A number of the table is not written in one to three bytes, as few as it needs.")
        found: list[int] = numbers.tolist()
        return found

    def skip_padding(self) -> None:
        while self.position % 4:
            if self.byte():
                raise FrameError("The padding behind the table is not zero.")
