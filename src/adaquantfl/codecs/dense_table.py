"""The dense codec's table: which interval of 2^e levels, or which pair of levels, has which share of the 4096 slots.

`of_levels` and `of_pairs` choose it for a histogram, `to_bytes` and `read` are its wire form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..memory import empty
from ..threads import over_ranges
from .frame import TILE
from .kernels import tables as kernels
from .kernels.dense import histogram as count
from .kernels.tables import SLOTS, WIDEST
from .varints import read_varints, varint

LARGEST_OF_PAIR = 7  # levels of pairs are -7 to 7
_LOOK = 4096  # elements that are looked at first
TILES_EACH = 2  # tiles a thread takes at least
_FEW = 32  # numbers: that many are written and read one by one
_TOO_LONG = "A number of the table is not written in one to three bytes, as few as it needs."

Counts = npt.NDArray[np.int64]
Symbols = npt.NDArray[np.int16]
Values = npt.NDArray[np.signedinteger]


def histogram(values: npt.NDArray[np.signedinteger], s: int) -> Counts:
    """How often each level occurs: element l + s counts level l. No level may be outside -s to s.

    >>> histogram(np.array([1, 0, -2, 1], dtype=np.int8), s=2).tolist()
    [1, 0, 1, 2, 0]
    """
    parts: list[Counts] = []

    def work(first: int, last: int) -> None:
        mine = values[first * TILE : last * TILE]
        rows = np.zeros((4 if len(mine) > 4 * s else 1, 2 * s + 1), dtype=np.int64)
        count(mine, s, rows)
        parts.append(rows[0] if len(rows) == 1 else rows.sum(axis=0))

    over_ranges(work, -(-len(values) // TILE), TILES_EACH)
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)


def entropy_bytes(counts: Counts) -> float:
    """The entropy of levels with this histogram."""
    return float(kernels.entropy(counts)) / 8


@dataclass(frozen=True)
class Census:
    """How often each level occurs, and each pair of neighbours where the levels are small (else None)."""

    counts: Counts
    pairs: Counts | None = None
    symbols: Symbols | None = None  # those pairs

    @staticmethod
    def of(values: Values, s: int) -> Census:
        """Counts of the levels -s to s. Those of pairs take half the time, and yield those of single levels.

        >>> Census.of(np.array([1, 0, 1], dtype=np.int8), s=2).counts.tolist()
        [0, 0, 1, 2, 0]
        """
        largest = s
        for some in (values[:_LOOK], values) if s > LARGEST_OF_PAIR else ():  # a few of them mostly suffice
            largest = _largest(some)
            if largest > LARGEST_OF_PAIR:
                return Census(histogram(values, s))
        largest, symbols = max(largest, 1), as_pairs(values)
        bound = 256 * (largest + 1)
        grid = histogram(symbols, bound)[pair_symbols(largest) + bound]
        grid = grid.reshape(2 * largest + 1, -1)
        counts = np.zeros(2 * s + 1, dtype=np.int64)
        counts[s - largest : s + largest + 1] = grid.sum(axis=0) + grid.sum(axis=1)
        counts[s] -= len(values) % 2  # the 0 behind the last element
        return Census(counts, grid.ravel(), symbols)

    @property
    def largest(self) -> int:
        """The largest level of the pairs that were counted."""
        return 0 if self.pairs is None else math.isqrt(len(self.pairs)) // 2


def as_pairs(values: Values) -> Symbols:
    """Two small levels each as one symbol; behind an odd number of levels comes a 0."""
    d = len(values)
    if values.dtype == np.int8 and d % 2 == 0 and values.ctypes.data % 2 == 0 and values.flags.c_contiguous:
        return values.view("<i2")
    pairs = empty(d + d % 2, np.int8)
    pairs[d:] = 0
    _by_tiles(lambda here: pairs[:d].__setitem__(here, values[here]), d)
    return pairs.view("<i2")


def _largest(values: Values) -> int:
    found: list[int] = []
    _by_tiles(lambda here: found.append(int(max(values[here].max(), -int(values[here].min())))), len(values))
    return max(found)


def _by_tiles(work: Callable[[slice], None], dimension: int) -> None:
    """Call `work` with slices that together cover a vector."""
    over_ranges(lambda first, last: work(slice(first * TILE, last * TILE)), -(-dimension // TILE), TILES_EACH)


@dataclass(frozen=True)
class Table:
    """Which interval of 2^width levels, from `lowest` on, has how many slots; pairs: the largest level of one, or 0.

    The symbol of a pair is its two bytes, the first element's first: reading writes both at once.
    """

    columns: npt.NDArray[np.int64]  # lowest levels or pairs, ascending; widths; frequencies. Contiguous for the kernels
    pairs: int = 0

    @staticmethod
    def of_levels(counts: Counts, widest: int = WIDEST) -> tuple[Table, float]:
        """The table for a histogram, and the bits that the histogram's levels take with it."""
        size, table = 2 * len(counts), np.zeros((5, min(len(counts), SLOTS)), dtype=np.int64)
        scratch = np.empty(size), np.empty(size), np.empty(size, np.int8)
        found, price = SLOTS + 1, 1.0
        while found > SLOTS:  # then places in the table become dearer
            found = kernels.intervals(counts, widest, price, *scratch, table)
            price *= 4
        content: float = kernels.shares(table, found)
        return Table(table[:3, :found].copy()), content

    @staticmethod
    def of_pairs(counts: Counts, largest: int) -> tuple[Table, float]:
        """The same for a histogram of pairs, in the order of `pair_symbols`."""
        used = np.flatnonzero(counts)
        table = np.zeros((5, len(used)), dtype=np.int64)
        table[0], table[3] = pair_symbols(largest)[used], counts[used]
        content: float = kernels.shares(table, len(used))
        return Table(table[:3], largest), content

    @property
    def largest(self) -> int:
        """The largest magnitude of a level that the table can express, at least 1."""
        end = int(self.columns[0, -1]) + (1 << int(self.columns[1, -1]))
        return self.pairs or max(1, -int(self.columns[0, 0]), end - 1)

    def to_bytes(self, s: int) -> bytes:
        """Of pairs, all frequencies; else runs of adjacent intervals of one width, as docs/wire-format.md says."""
        if self.pairs:
            each = np.zeros(len(pair_symbols(self.pairs)), dtype=np.int64)
            each[np.isin(pair_symbols(self.pairs), self.columns[0])] = self.columns[2]
            return varints(each)
        out = np.empty(kernels.MOST_BYTES * self.columns.shape[1], np.uint8)
        return out[: kernels.write(self.columns, s, out)].tobytes()

    @staticmethod
    def read(reader: Reader, pairs: int, s: int) -> Table:
        """The reverse of to_bytes; FrameError where there is no such table."""
        if pairs:
            return Table._read_pairs(reader, pairs, s)
        table, seen = np.empty((3, min(2 * s + 1, SLOTS)), dtype=np.int64), np.array([reader.position, 0, 0, 0])
        found = kernels.read(reader.body, s, seen, table)
        reader.position, level, width, count = seen.tolist()
        if found == kernels.TRUNCATED:
            raise FrameError("Truncated: the body ends within its table.")
        if found == kernels.NUMBER:
            raise FrameError(_TOO_LONG)
        if found == kernels.WIDTH:
            raise FrameError(f"The table has an interval of 2^{width} levels; 2^{WIDEST} is the limit.")
        if found == kernels.COUNT:
            raise FrameError(f"The table has {count:,} intervals of 2^{width} levels at {level}, with s = {s}.")
        if found == kernels.FREQUENCY:
            raise FrameError(f"The table's frequencies have a zero or add up to more than {SLOTS}.")
        return Table(table[:, :found].copy())

    @staticmethod
    def _read_pairs(reader: Reader, pairs: int, s: int) -> Table:
        if pairs > min(s, LARGEST_OF_PAIR):
            raise FrameError(f"Pairs of levels up to {pairs} with s = {s}; {LARGEST_OF_PAIR} is the limit.")
        symbols = pair_symbols(pairs)
        each = np.array(reader.varints(len(symbols)), dtype=np.int64)
        if each.sum() != SLOTS:
            raise FrameError(f"The frequencies of the pairs add up to {each.sum():,} instead of {SLOTS:,}.")
        used = np.flatnonzero(each)
        return Table(np.stack([symbols[used], np.zeros_like(used), each[used]]), pairs)


@lru_cache
def pair_symbols(largest: int) -> npt.NDArray[np.int64]:
    """The symbols of all pairs of levels, ordered by the first level and then by the second.

    >>> pair_symbols(1).tolist()  # -1 is the byte 255
    [-1, 255, 511, -256, 0, 256, -255, 1, 257]
    """
    levels = np.arange(-largest, largest + 1)
    first, second = (part.ravel() for part in np.meshgrid(levels, levels, indexing="ij"))
    return (second << 8) + (first & 255)


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
        self._bytes = body.data

    def byte(self) -> int:
        if self.position >= len(self._bytes):
            raise FrameError("Truncated: the body ends within its table.")
        self.position += 1
        return self._bytes[self.position - 1]

    def varint(self) -> int:
        """A number below 2^21, in as few bytes as it needs."""
        return self.varints(1)[0]

    def varints(self, count: int) -> list[int]:
        """Several of them; many are read together."""
        if count > _FEW:
            many, self.position = read_varints(self._bytes, self.position, count)
            if many.max() < 1 << 21:
                found: list[int] = many.tolist()
                return found
            raise FrameError(_TOO_LONG)
        numbers: list[int] = []
        number = shift = 0
        while len(numbers) < count:
            byte = self.byte()
            number |= (byte & 127) << shift
            if byte < 128:
                if byte == 0 and shift:
                    raise FrameError(_TOO_LONG)
                numbers.append(number)
                number = shift = 0
            elif shift == 14:
                raise FrameError(_TOO_LONG)
            else:
                shift += 7
        return numbers

    def skip_padding(self) -> None:
        while self.position % 4:
            if self.byte():
                raise FrameError("The padding behind the table is not zero.")
