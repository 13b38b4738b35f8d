"""The wide body of the dense codec: rANS with 64 states, which vectors of a processor hold.

A symbol is one level or, where levels are small, a pair of neighbours, so that one look-up yields both. A body has one
table of 4096 slots and then a stream for each chunk of 2^c symbols.
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
from ..quantizers.levels import level_dtype
from ..threads import over_ranges
from .dense_table import TILES_EACH, Counts, LevelTable, Reader, entropy_bytes, histogram, shares, slots, varints
from .frame import TILE, Frame, Part
from .kernels import rans
from .kernels.rans import MOST_WIDTH, STATE_WORDS
from .kernels.rans_vectors import LANES, SCALE_BITS, WIDTH_BITS
from .varints import varint

TAG = 3
LARGEST_OF_PAIR = 7  # levels of pairs are -7 to 7
_LEAST_EXPONENT, _MOST_EXPONENT = 16, 20  # of the number of symbols in a chunk
_CHUNK_BITS = 2**19  # content of a chunk, at least: its states then take 0.3 % of it
_STATE_BYTES = 4 * LANES - LANES  # of a chunk; a final state holds from 15 to 31 bits, 8 of them content on average
SLACK = 1.008  # of a body's size, over the entropy of its levels; otherwise the narrow body is the better one
LEAST_ELEMENTS = 2**14  # fewer would have to take 12 bits each
_LOOK = 4096  # elements that are looked at first
_MOST_SPAN = 2**14  # levels from the lowest to the highest: their intervals must fit the slots
_SLOTS = 1 << SCALE_BITS
Symbols = npt.NDArray[np.int16]


@dataclass(frozen=True)
class SymbolTable:
    """Which interval of 2^width symbols, from `lowest` on, has how many slots; pairs: the largest level of one, or 0.

    The symbol of a pair is its two bytes, the first element's first: reading writes both at once.
    """

    columns: npt.NDArray[np.int64]  # lowest symbols, widths, frequencies
    pairs: int = 0

    @staticmethod
    def of_levels(counts: Counts) -> tuple[SymbolTable, float] | None:
        """The table for a histogram of levels, and the bits that they take; None where it cannot hold them."""
        used = np.flatnonzero(counts)
        if used[-1] - used[0] >= _MOST_SPAN or max(used[-1], len(counts) - 1 - used[0]) - len(counts) // 2 >= 2**15:
            return None
        table, content = LevelTable.of(counts, MOST_WIDTH)
        if table.largest >= 2**15:  # an interval may begin below the lowest level
            return None
        return SymbolTable(table.columns), content

    @staticmethod
    def of_pairs(counts: Counts, largest: int) -> tuple[SymbolTable, float]:
        """The same for a histogram of pairs, in the order of `pair_symbols`."""
        symbols, used = pair_symbols(largest), np.flatnonzero(counts)
        columns, content = shares(symbols[used], counts[used])
        return SymbolTable(columns, largest), content

    @property
    def largest(self) -> int:
        """The largest magnitude of a level that the table can express, at least 1."""
        return self.pairs or LevelTable(self.columns).largest

    def to_bytes(self, s: int) -> bytes:
        if not self.pairs:
            return LevelTable(self.columns).to_bytes(s)
        each = np.zeros(len(pair_symbols(self.pairs)), dtype=np.int64)
        each[np.isin(pair_symbols(self.pairs), self.columns[0])] = self.columns[2]
        return varints(each)

    @staticmethod
    def read(reader: Reader, pairs: int, s: int) -> SymbolTable:
        """The reverse of to_bytes; FrameError where there is no such table."""
        if not pairs:
            table = LevelTable.read(reader, s, MOST_WIDTH)
            if table.largest >= 2**15:
                raise FrameError(f"The table of a wide body reaches {table.largest:,}; 32,767 is the limit.")
            return SymbolTable(table.columns)
        if pairs > min(s, LARGEST_OF_PAIR):
            raise FrameError(f"Pairs of levels up to {pairs} with s = {s}; {LARGEST_OF_PAIR} is the limit.")
        symbols = pair_symbols(pairs)
        each = np.array(reader.varints(len(symbols)), dtype=np.int64)
        if each.sum() != _SLOTS:
            raise FrameError(f"The frequencies of the pairs add up to {each.sum():,} instead of {_SLOTS:,}.")
        used = np.flatnonzero(each)
        return SymbolTable(np.stack([symbols[used], np.zeros_like(used), each[used]]), pairs)

    def for_writing(self) -> tuple[int, npt.NDArray[np.uint64]]:
        """The lowest symbol, and what encode_chunks takes for each symbol from there on."""
        lowest, widths, _ = self.columns
        base, end = int(lowest.min()), int((lowest + (1 << widths)).max())
        rows = np.zeros(end - base, dtype=np.uint64)
        rans.rows_of(self.columns, base, rows)
        return base, rows

    def for_reading(self) -> npt.NDArray[np.uint64]:
        """Each slot's frequency, its place among its interval's, and the interval, as decode_chunks takes them."""
        return slots(self.columns, WIDTH_BITS)


@lru_cache
def pair_symbols(largest: int) -> npt.NDArray[np.int64]:
    """The symbols of all pairs of levels, ordered by the first level and then by the second.

    >>> pair_symbols(1).tolist()  # -1 is the byte 255
    [-1, 255, 511, -256, 0, 256, -255, 1, 257]
    """
    levels = np.arange(-largest, largest + 1)
    first, second = (part.ravel() for part in np.meshgrid(levels, levels, indexing="ij"))
    return (second << 8) + (first & 255)


@dataclass(frozen=True)
class Plan:
    """How a vector would be written: its table, the exponent c, the first bytes, and about how many there will be."""

    table: SymbolTable
    exponent: int
    head: bytes
    size: float
    symbols: Symbols | None = None  # where they are known already

    @staticmethod
    def of(table: SymbolTable, content: float, dimension: int, s: int, pairs: Symbols | None = None) -> Plan:
        symbols = _symbols(dimension, table.pairs)
        exponent = _LEAST_EXPONENT
        while exponent < _MOST_EXPONENT and content * 2**exponent < _CHUNK_BITS * symbols:
            exponent += 1
        chunks, head = -(-symbols >> exponent), bytes([table.pairs, exponent]) + table.to_bytes(s)
        return Plan(table, exponent, head, content / 8 + len(head) + (_STATE_BYTES + 3) * chunks, pairs)


@dataclass(frozen=True)
class Census:
    """How often each level occurs, and each pair of neighbours where the levels are small (else None)."""

    counts: Counts
    pairs: Counts | None = None
    symbols: Symbols | None = None  # those pairs

    @staticmethod
    def of(values: npt.NDArray[np.signedinteger], s: int) -> Census:
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


def plan(census: Census, dimension: int) -> Plan | None:
    """The plan for these levels; None where the body would be much above their entropy."""
    counts = census.counts
    if dimension < LEAST_ELEMENTS:
        return None
    entropy = entropy_bytes(counts)
    if (SLACK - 1) * entropy < _STATE_BYTES:  # few elements
        return None
    if census.pairs is not None:
        table_of_pairs = SymbolTable.of_pairs(census.pairs, census.largest)
        found = Plan.of(*table_of_pairs, dimension, len(counts) // 2, census.symbols)
        if found.size <= SLACK * entropy:
            return found
    table = SymbolTable.of_levels(counts)
    other = Plan.of(*table, dimension, len(counts) // 2) if table else None
    return other if other and other.size <= SLACK * entropy else None


def encode(values: npt.NDArray[np.signedinteger], how: Plan) -> list[Part]:
    """The parts of a body."""
    table, chunk = how.table, 1 << how.exponent
    symbols: npt.NDArray[np.signedinteger] = how.symbols if how.symbols is not None else values
    if how.symbols is None and (table.pairs or values.itemsize > 2):
        symbols = as_pairs(values) if table.pairs else values.astype(np.int16)
    lowest, rows = table.for_writing()
    sizes = np.empty(-(-len(symbols) // chunk), dtype=np.int64)
    streams: dict[int, npt.NDArray[np.uint16]] = {}

    def work(first: int, last: int) -> None:
        here = symbols[first * chunk : last * chunk]
        words = empty(len(here) + (last - first) * STATE_WORDS + 16, np.uint16)
        states, cursor = np.empty(LANES, dtype=np.uint32), np.empty(rans.CURSOR, dtype=np.int64)
        rans.encode_chunks(here, chunk, lowest, rows, states, cursor, words, sizes[first:last])
        streams[first] = words[: sizes[first:last].sum()]

    over_ranges(work, len(sizes), smallest=1)
    head = how.head + b"".join([varint(size - STATE_WORDS) for size in sizes.tolist()])
    head += bytes(-len(head) % 4)
    return [head, *(streams[first].view(np.uint8) for first in sorted(streams))]


def read(frame: Frame) -> npt.NDArray[np.signedinteger]:
    """The levels of a wide body, in the smallest integers that hold them; FrameError says why it is refused."""
    d, top, body = frame.header.dimension, frame.header.top, frame.body
    reader = Reader(body)
    pairs, exponent = reader.byte(), reader.byte()
    if not _LEAST_EXPONENT <= exponent <= _MOST_EXPONENT:
        raise FrameError(f"Chunks of 2^{exponent} symbols; 2^{_LEAST_EXPONENT} to 2^{_MOST_EXPONENT} are allowed.")
    chunk, count = 1 << exponent, _symbols(d, pairs)
    chunks = -(-count // chunk)
    if len(body) < 2 * STATE_WORDS * chunks:
        raise FrameError(f"The body has {len(body):,} bytes; d = {d:,} needs at least {2 * STATE_WORDS * chunks:,}.")
    table = SymbolTable.read(reader, pairs, top)
    lengths = np.array(reader.varints(chunks), dtype=np.int64) + STATE_WORDS
    reader.skip_padding()
    edges = np.concatenate([[0], np.cumsum(lengths)])
    size, left = 2 * int(edges[-1]), len(body) - reader.position
    if size != left:
        raise FrameError(f"The chunks should have {size:,} bytes, but {left:,} follow the table.")
    words = body[reader.position :].view("<u2")
    words = words if words.flags.aligned else words.copy()
    words.flags.writeable = False  # like the bytes that most frames are: one kernel for both
    slots = table.for_reading()
    values = empty(2 * count if pairs else d, level_dtype(table.largest))
    symbols = values.view(np.int16) if pairs else values
    wrong: list[int] = []

    def work(first: int, last: int) -> None:
        states, cursor = np.empty(LANES, dtype=np.uint32), np.empty(rans.CURSOR, dtype=np.int64)
        here = symbols[first * chunk : last * chunk]
        read = rans.decode_chunks(words, edges[first : last + 1], slots, states, cursor, here, chunk)
        if read < last - first:
            wrong.append(first + read)

    over_ranges(work, chunks, smallest=1)
    if wrong or values[d:].any():
        raise FrameError(f"The stream of chunk {min(wrong, default=chunks - 1)} does not end where it should.")
    return values[:d]


def as_pairs(values: npt.NDArray[np.signedinteger]) -> Symbols:
    """Two small levels each as one symbol; behind an odd number of levels comes a 0."""
    d = len(values)
    if values.dtype == np.int8 and d % 2 == 0 and values.ctypes.data % 2 == 0 and values.flags.c_contiguous:
        return values.view("<i2")
    pairs = empty(d + d % 2, np.int8)
    pairs[d:] = 0
    _by_tiles(lambda here: pairs[:d].__setitem__(here, values[here]), d)
    return pairs.view("<i2")


def _largest(values: npt.NDArray[np.signedinteger]) -> int:
    found: list[int] = []
    _by_tiles(lambda here: found.append(int(max(values[here].max(), -int(values[here].min())))), len(values))
    return max(found)


def _by_tiles(work: Callable[[slice], None], dimension: int) -> None:
    """Call `work` with slices that together cover a vector."""
    over_ranges(lambda first, last: work(slice(first * TILE, last * TILE)), -(-dimension // TILE), TILES_EACH)


def _symbols(dimension: int, pairs: int) -> int:
    return -(-dimension // 2) if pairs else dimension
