"""Static rANS on the signed levels: within 1 % of their entropy, for vectors with more than a tenth of non-zeros.

A symbol is one level or, where levels are small, a pair of neighbours, so that one look-up yields both. A body has one
table of 4096 slots and then a stream for each chunk of 2^c symbols, with 64 states, which vectors of a processor hold,
or fewer where there is little to write. Of levels in wide intervals, the low bits follow behind the streams.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..memory import empty
from ..quantizers.levels import Levels, level_dtype
from ..quantizers.uniform import Prepared
from ..threads import over_ranges
from .dense_table import Census, Reader, Symbols, Table, Values, as_pairs, entropy_bytes, histogram
from .frame import TILE, Frame, Header, Known, Part, framed
from .header import Floats, Lengths, Offsets
from .kernels import dense as kernels
from .kernels import tables
from .kernels.dense import MOST_WIDTH
from .kernels.dense_vectors import LANES as MANY_LANES
from .kernels.dense_vectors import SOME_LANES
from .varints import varint

NAME = "dense"
TAG = 2
LANES = (4, SOME_LANES, MANY_LANES)  # states of a stream; vectors of a processor hold 16 or 64
STATE_BYTES = 3  # of a state that carry no levels: it holds from 15 to 31 bits, 8 of them content on average
_LEAST_EXPONENT, _MOST_EXPONENT = 16, 20  # of the number of symbols in a chunk
_CHUNK_BITS = 2**19  # content of a chunk, at least: its states then take 0.3 % of it
_SLACK = 1.008  # of a body's size, over the entropy of its levels; otherwise wider intervals are better
_STATES = {MANY_LANES: 0.003, SOME_LANES: 0.016}  # the largest share of the content that this many states may take
_FEW_BYTES = 64  # that pairs or narrow intervals, which are fast, may cost a short vector
_LONG = 2**14  # elements from which pairs are counted
_MOST_SPAN = tables.SLOTS << MOST_WIDTH - 1  # levels from the lowest to the highest whose intervals fit the slots


def are_symbols(table: Table) -> bool:
    """Whether the levels of a table, or pairs of them, are themselves the symbols; see `Alphabet`."""
    return bool(table.pairs) or (int(table.columns[1].max()) <= MOST_WIDTH and table.largest < 2**15)


class Alphabet:
    """Symbols for levels in wide intervals: at most eight for an interval, so that int16 holds them all.

    columns: lowest symbols, widths and frequencies of the intervals. extra: how many low bits of a level each symbol
    leaves out; base: its lowest level.
    """

    def __init__(self, table: Table) -> None:
        lowest, widths, frequencies = table.columns
        kept = np.minimum(widths, MOST_WIDTH)
        sizes = 1 << kept
        starts = np.cumsum(sizes) - sizes
        self.table, self.columns = table, np.stack([starts, kept, frequencies])
        self.extra = np.repeat((widths - kept).astype(np.uint8), sizes)
        place = np.arange(len(self.extra)) - np.repeat(starts, sizes)
        self.base = (np.repeat(lowest, sizes) + (place << self.extra)).astype(np.int32)

    def split(self, values: Values) -> tuple[Symbols, bytes]:
        """The symbols of levels, and the low bits that they leave out."""
        first, last = int(self.base[0]), int(self.base[-1]) + (1 << int(self.extra[-1]))
        symbol_of = (np.searchsorted(self.base, np.arange(first, last), side="right") - 1).astype(np.int16)
        symbols = empty(len(values), np.int16)
        words = empty(len(values) * int(self.extra.max()) // 32 + 1, np.uint32)
        bits = kernels.split_low(values, first, symbol_of, self.base, self.extra, symbols, words)
        return symbols, words.view(np.uint8)[: -(-bits // 8)].tobytes()

    def join(self, symbols: Symbols, low: npt.NDArray[np.uint8]) -> Values:
        """The reverse of `split`; FrameError where these are not the low bits of these symbols."""
        words = np.zeros(len(low) // 4 + 3, dtype="<u4")
        words.view(np.uint8)[: len(low)] = low
        values = empty(len(symbols), level_dtype(self.table.largest))
        bits = kernels.join_low(symbols, self.base, self.extra, words, values)
        if len(low) != -(-bits // 8) or (bits % 8 and low[-1] >> bits % 8):
            raise FrameError(f"The {len(low):,} bytes behind the streams are not the low bits of the levels.")
        return values


@dataclass(frozen=True)
class Plan:
    """How a vector would be written: table, states, exponent c, the first bytes, and about how many there will be."""

    table: Table
    lanes: int
    exponent: int
    head: bytes
    size: float
    symbols: Symbols | None = None  # where they are known already

    @staticmethod
    def of(table: Table, content: float, dimension: int, s: int, pairs: Symbols | None = None) -> Plan:
        """content: the bits that the levels take. States take less than 1 % of that, where there are enough of them."""
        symbols = _symbols(dimension, table.pairs)
        exponent = _LEAST_EXPONENT
        while exponent < _MOST_EXPONENT and content * 2**exponent < _CHUNK_BITS * symbols:
            exponent += 1
        chunks = -(-symbols >> exponent)
        enough = (lanes for lanes, share in _STATES.items() if STATE_BYTES * lanes * chunks <= share * content / 8)
        lanes = next(enough, LANES[0])
        head = head_of(table, lanes, exponent, s)
        return Plan(table, lanes, exponent, head, content / 8 + len(head) + (STATE_BYTES * lanes + 3) * chunks, pairs)


def head_of(table: Table, lanes: int, exponent: int, s: int) -> bytes:
    """The bytes in front of the lengths of the streams."""
    return bytes([table.pairs | LANES.index(lanes) << 4, exponent]) + table.to_bytes(s)


def plan(census: Census, dimension: int) -> Plan:
    """The plan of `encode`; its size is within 0.5 % of large bodies.

    >>> counts = np.array([10_000, 80_000, 10_000])  # 0.92 bits of entropy an element
    >>> round(plan(Census(counts), dimension=100_000).size)
    11586
    """
    counts, s = census.counts, len(census.counts) // 2
    limit = _SLACK * entropy_bytes(counts) + _FEW_BYTES
    if census.pairs is not None:
        found = Plan.of(*Table.of_pairs(census.pairs, census.largest), dimension, s, census.symbols)
        if found.size <= limit:
            return found
    if len(counts) <= _MOST_SPAN or np.ptp(np.flatnonzero(counts)) < _MOST_SPAN:
        found = Plan.of(*Table.of_levels(counts, MOST_WIDTH), dimension, s)
        if found.size <= limit:
            return found
    return Plan.of(*Table.of_levels(counts), dimension, s)


def encode(levels: Levels, known: Known | None = None) -> bytes:
    """Levels to a frame."""
    top, values = levels.top, levels.values
    long = len(values) >= _LONG
    how = plan(Census.of(values, top) if long else Census(histogram(values, top)), levels.dimension)
    return framed(Header.of(levels, TAG), body_parts(levels, how), known)


def body_parts(levels: Levels, how: Plan) -> list[Part]:
    """The parts of a body."""
    values = np.ascontiguousarray(levels.values, dtype=level_dtype(levels.top))
    table, columns, chunk, low = how.table, how.table.columns, 1 << how.exponent, b""
    symbols: Values = how.symbols if how.symbols is not None else values
    if not are_symbols(table):
        alphabet = Alphabet(table)
        columns, (symbols, low) = alphabet.columns, alphabet.split(values)
    elif how.symbols is None and (table.pairs or values.itemsize > 2):
        symbols = as_pairs(values) if table.pairs else values.astype(np.int16)
    lowest = int(columns[0].min())
    rows = np.zeros(int((columns[0] + (1 << columns[1])).max()) - lowest, dtype=np.uint64)
    kernels.rows_of(columns, lowest, rows)
    sizes = np.empty(-(-len(symbols) // chunk), dtype=np.int64)
    streams: dict[int, npt.NDArray[np.uint16]] = {}

    def work(first: int, last: int) -> None:
        here = symbols[first * chunk : last * chunk]
        words = empty(len(here) + 2 * (last - first) * how.lanes + 16, np.uint16)
        states, cursor = np.empty(how.lanes, dtype=np.uint32), np.empty(kernels.CURSOR, dtype=np.int64)
        kernels.encode_chunks(here, chunk, lowest, rows, states, cursor, words, sizes[first:last])
        streams[first] = words[: sizes[first:last].sum()]

    over_ranges(work, len(sizes), smallest=1)
    head = how.head + b"".join([varint(size - 2 * how.lanes) for size in sizes.tolist()])
    head += bytes(-len(head) % 4)
    return [head, *(streams[first].view(np.uint8) for first in sorted(streams)), low]


def compress(
    ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: Lengths, known: Known | None = None
) -> bytes:
    """Floats to a frame: the bytes that `encode` gives for the levels of `quantize`.

    The table comes before the levels, so they are kept in between: quantizing them twice takes longer.
    """
    values = ready.levels(0, ready.segments.dimension, s, low, high)
    return encode(ready.as_levels(values, s, segments), known)


def open_body(frame: Frame) -> DenseBody:
    """Check and decode the body; the levels are kept in the smallest integers that hold them."""
    d, body = frame.header.dimension, frame.body
    reader = Reader(body)
    first, exponent = reader.byte(), reader.byte()
    pairs, place = first & 15, first >> 4
    if place >= len(LANES):
        raise FrameError(f"The body begins with {first}, which names no number of states.")
    lanes = LANES[place]
    if not _LEAST_EXPONENT <= exponent <= _MOST_EXPONENT:
        raise FrameError(f"Chunks of 2^{exponent} symbols; 2^{_LEAST_EXPONENT} to 2^{_MOST_EXPONENT} are allowed.")
    chunk, count = 1 << exponent, _symbols(d, pairs)
    chunks = -(-count // chunk)
    if len(body) < 4 * lanes * chunks:
        raise FrameError(f"The body has {len(body):,} bytes; d = {d:,} needs at least {4 * lanes * chunks:,}.")
    table = Table.read(reader, pairs, frame.header.top)
    alphabet = None if are_symbols(table) else Alphabet(table)
    lengths = np.array(reader.varints(chunks), dtype=np.int64) + 2 * lanes
    reader.skip_padding()
    edges = np.concatenate([[0], np.cumsum(lengths)])
    size, left = 2 * int(edges[-1]), len(body) - reader.position
    if size > left or (size < left and alphabet is None):
        raise FrameError(f"The chunks should have {size:,} bytes, but {left:,} follow the table.")
    words = body[reader.position : reader.position + size].view("<u2")
    words = words if words.flags.aligned else words.copy()
    words.flags.writeable = False  # like the bytes that most frames are: one kernel for both
    slots = np.empty(tables.SLOTS, np.uint64)
    tables.slots(alphabet.columns if alphabet else table.columns, slots)
    values = empty(2 * count if pairs else d, np.int16 if alphabet else level_dtype(table.largest))
    symbols = values.view(np.int16) if pairs else values
    wrong: list[int] = []

    def work(first: int, last: int) -> None:
        states, cursor = np.empty(lanes, dtype=np.uint32), np.empty(kernels.CURSOR, dtype=np.int64)
        here = symbols[first * chunk : last * chunk]
        read = kernels.decode_chunks(words, edges[first : last + 1], slots, states, cursor, here, chunk)
        if read < last - first:
            wrong.append(first + read)

    over_ranges(work, chunks, smallest=1)
    if wrong or values[d:].any():
        raise FrameError(f"The stream of chunk {min(wrong, default=chunks - 1)} does not end where it should.")
    return DenseBody(alphabet.join(values, body[reader.position + size :]) if alphabet else values[:d])


@dataclass(frozen=True)
class DenseBody:
    """A checked and decoded body."""

    values: Values

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def decode(self, values: Values) -> None:
        values[:] = self.values

    def add(self, steps: Floats, offsets: Offsets, total: Floats, first: int, last: int) -> None:
        kernels.accumulate(self.values, offsets, steps, total, first * TILE, min(last * TILE, len(self.values)))


def _symbols(dimension: int, pairs: int) -> int:
    return -(-dimension // 2) if pairs else dimension
