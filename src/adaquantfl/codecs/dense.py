"""Static rANS on the signed levels: within 1 % of their entropy, for vectors with more than a tenth of non-zeros.

A body has one frequency table and then a stream for each tile of 65,536 elements. The table cuts the levels into
intervals of 2^e neighbours, and gives each a share of 4096 slots. A level is its interval's share and e plain bits.
Long vectors have a wide body, which is read and written several times as fast (dense_wide.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..memory import done, empty
from ..quantizers.levels import Levels, level_dtype
from ..quantizers.uniform import Prepared
from ..threads import over_ranges
from . import dense_wide as wide
from .dense_table import TILES_EACH, LevelTable, Reader, Writing, histogram
from .dense_wide import Census
from .frame import TILE, Frame, Header, Part, framed
from .kernels import dense as kernels
from .kernels.dense import LANES, STATE_WORDS
from .varints import varint

NAME = "dense"
TAG = 2
TAGS = (TAG, wide.TAG)
TILE_OVERHEAD = 24  # bytes of a tile that carry no levels, about


@dataclass(frozen=True)
class Plan:
    """How a vector would be written: a wide body's plan or a narrow one's, and about how many bytes it takes."""

    size: float
    wide: wide.Plan | None
    narrow: Writing | None


def plan(census: Census, dimension: int) -> Plan:
    """The plan of `encode`; its size is within 0.5 % of large bodies.

    >>> counts = np.array([10_000, 80_000, 10_000])  # 0.92 bits of entropy an element
    >>> round(plan(Census(counts), dimension=100_000).size)
    11585
    """
    how = wide.plan(census, dimension)
    if how:
        return Plan(how.size, how, None)
    table, content = LevelTable.of(census.counts)
    tiles = -(-dimension // TILE)
    # A final state holds between 31 and 63 bits, 16 of them content on average.
    states = max(content / 8 - 2 * LANES * tiles, 0.0) + 4 * STATE_WORDS * tiles
    writing = table.for_writing(len(census.counts) // 2)
    return Plan(len(writing.head) + 2 * tiles + states, None, writing)


def encode(levels: Levels, how: Plan | None = None) -> bytes:
    """Levels to a frame. how: their plan, where the caller has it already."""
    top = levels.top
    values = np.ascontiguousarray(levels.values, dtype=level_dtype(top))
    if how is None:
        long = len(values) >= wide.LEAST_ELEMENTS
        how = plan(Census.of(values, top) if long else Census(histogram(values, top)), levels.dimension)
    if how.narrow:
        return framed(Header.of(levels, TAG), _encode_narrow(values, how.narrow))
    assert how.wide
    return framed(Header.of(levels, wide.TAG), wide.encode(values, how.wide))


def _encode_narrow(values: npt.NDArray[np.signedinteger], how: Writing) -> list[Part]:
    """The parts of a body with four states: the smallest for few elements, and for levels with long tails."""
    tiles = -(-len(values) // TILE)
    streams: list[Part] = [b""] * tiles

    def work(first: int, last: int) -> None:
        scratch = empty(min(len(values), TILE) + STATE_WORDS + 1, np.uint32)
        states = np.empty(LANES, dtype=np.uint64)
        for tile in range(first, last):
            here = values[tile * TILE : (tile + 1) * TILE]
            start = kernels.encode_tile(here, how.lowest, how.intervals, how.rows, states, scratch)
            stream = scratch[start:].view(np.uint8)
            if tile < last - 1:  # the scratch is used again
                stream = empty(len(stream), np.uint8)
                stream[:] = scratch[start:].view(np.uint8)
            streams[tile] = stream

    over_ranges(work, tiles, TILES_EACH)
    head = how.head + b"".join([varint(len(stream) // 4 - STATE_WORDS) for stream in streams])
    return [head + bytes(-len(head) % 4), *streams]


def compress(ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: npt.NDArray[np.int64] | None) -> bytes:
    """Floats to a frame: the bytes that `encode` gives for the levels of `quantize`.

    The table comes before the levels, so they are kept in between: quantizing them twice takes longer.
    """
    values = ready.levels(0, ready.segments.dimension, s, low, high)
    return encode(ready.as_levels(values, s, segments))


def open_body(frame: Frame) -> DenseBody:
    """Check and decode the body; the levels are kept in the smallest integers that hold them."""
    if frame.header.codec == wide.TAG:
        return DenseBody(wide.read(frame))
    d, top, body = frame.header.dimension, frame.header.top, frame.body
    tiles = -(-d // TILE)
    if len(body) < 4 * STATE_WORDS * tiles:
        raise FrameError(f"The body has {len(body):,} bytes; d = {d:,} needs at least {4 * STATE_WORDS * tiles:,}.")
    reader = Reader(body)
    table = LevelTable.read(reader, top)
    edges = [*accumulate((reader.varint() + STATE_WORDS for _ in range(tiles)), initial=0)]
    reader.skip_padding()
    size, left = 4 * edges[-1], len(body) - reader.position
    if size != left:
        raise FrameError(f"The tiles should have {size:,} bytes, but {left:,} follow the table.")
    words = empty(edges[-1] + LANES, "<u4")  # a copy: aligned, and with words behind its end
    words[:-LANES], words[-LANES:] = body[reader.position :].view("<u4"), 0
    slots = table.for_reading()
    values = empty(d, level_dtype(table.largest))
    wrong: list[int] = []

    def work(first: int, last: int) -> None:
        states = np.empty(LANES, dtype=np.uint64)
        for tile in range(first, last):
            target = values[tile * TILE : (tile + 1) * TILE]
            if kernels.decode_tile(words, edges[tile], slots, states, target) != edges[tile + 1]:
                wrong.append(tile)

    over_ranges(work, tiles, TILES_EACH)
    done(words)
    if wrong:
        raise FrameError(f"The stream of tile {min(wrong)} does not end where it should: the sender is at fault.")
    return DenseBody(values)


@dataclass(frozen=True)
class DenseBody:
    """A checked and decoded body."""

    values: npt.NDArray[np.signedinteger]

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def decode(self, values: npt.NDArray[np.signedinteger]) -> None:
        values[:] = self.values

    def add(
        self,
        steps: npt.NDArray[np.float32],
        offsets: npt.NDArray[np.int64],
        total: npt.NDArray[np.float32],
        first: int,
        last: int,
    ) -> None:
        kernels.accumulate(self.values, offsets, steps, total, first * TILE, min(last * TILE, len(self.values)))
