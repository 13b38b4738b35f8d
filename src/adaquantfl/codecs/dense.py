"""Static rANS on the signed levels: within 1 % of their entropy, for vectors with more than a tenth of non-zeros.

A body has one frequency table and then a stream for each tile of 65,536 elements. The table cuts the levels into
intervals of 2^e neighbours, and gives each a share of 4096 slots; a level is its interval's share and e plain bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..quantizers.levels import Levels, level_dtype
from ..quantizers.uniform import Prepared
from ..threads import over_ranges
from .dense_table import Counts, LevelTable, Reader
from .frame import TILE, Frame, Header, seal, varint, write_frame
from .kernels import dense as kernels
from .kernels.dense import LANES, STATE_WORDS

NAME = "dense"
TAG = 2
TILE_OVERHEAD = 24  # bytes of a tile that carry no levels, about
_SMALLEST = 2  # tiles a thread takes at least


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

    over_ranges(work, -(-len(values) // TILE), _SMALLEST)
    total: Counts = np.sum(parts, axis=0)
    return total


def estimate_size(counts: Counts, dimension: int) -> float:
    """Bytes of the body that `encode` would write, to within 0.5 % of large ones. counts: from `histogram`.

    >>> counts = np.array([10_000, 80_000, 10_000])  # 0.92 bits of entropy an element
    >>> round(estimate_size(counts, dimension=100_000))
    11585
    """
    table, content = LevelTable.of(counts)
    tiles = -(-dimension // TILE)
    # A final state holds between 31 and 63 bits, 16 of them content on average.
    states = max(content / 8 - 2 * LANES * tiles, 0.0) + 4 * STATE_WORDS * tiles
    return len(table.to_bytes(len(counts) // 2)) + 2 * tiles + states


def encode(levels: Levels, counts: Counts | None = None) -> bytes:
    """Levels to a frame. counts: their histogram, where the caller has it already."""
    top, d = levels.top, levels.dimension
    values = np.ascontiguousarray(levels.values, dtype=level_dtype(top))
    table, _ = LevelTable.of(histogram(values, top) if counts is None else counts)
    lowest, index, rows = table.for_writing()
    tiles = -(-d // TILE)
    streams: list[npt.NDArray[np.uint32]] = [np.empty(0, dtype=np.uint32)] * tiles

    def work(first: int, last: int) -> None:
        scratch = np.empty(min(d, TILE) + STATE_WORDS + 1, dtype=np.uint32)
        states = np.empty(LANES, dtype=np.uint64)
        for tile in range(first, last):
            start = kernels.encode_tile(values[tile * TILE : (tile + 1) * TILE], lowest, index, rows, states, scratch)
            streams[tile] = scratch[start:].copy()

    over_ranges(work, tiles, _SMALLEST)
    head = table.to_bytes(top) + b"".join(varint(len(stream) - STATE_WORDS) for stream in streams)
    head += bytes(-len(head) % 4)
    size = len(head) + 4 * sum(len(stream) for stream in streams)
    frame, body = write_frame(Header.of(levels, TAG), size)
    body[: len(head)] = np.frombuffer(head, dtype=np.uint8)
    np.concatenate(streams, out=body[len(head) :].view("<u4"))
    return seal(frame)


def compress(ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: npt.NDArray[np.int64] | None) -> bytes:
    """Floats to a frame: the bytes that `encode` gives for the levels of `quantize`.

    The table comes before the levels, so they are kept in between: quantizing them twice takes longer.
    """
    values = ready.levels(0, ready.segments.dimension, s, low, high)
    return encode(ready.as_levels(values, s, segments))


def open_body(frame: Frame) -> DenseBody:
    """Check and decode the body; the levels are kept in the smallest integers that hold them."""
    d, top, body = frame.header.dimension, frame.header.top, frame.body
    tiles = -(-d // TILE)
    if len(body) < 4 * STATE_WORDS * tiles:
        raise FrameError(f"The body has {len(body):,} bytes; d = {d:,} needs at least {4 * STATE_WORDS * tiles:,}.")
    reader = Reader(body)
    table = LevelTable.read(reader, top)
    lengths = np.array([reader.varint() for _ in range(tiles)], dtype=np.int64) + STATE_WORDS
    reader.skip_padding()
    edges = np.concatenate([[0], np.cumsum(lengths)])
    if 4 * int(edges[-1]) != len(body) - reader.position:
        raise FrameError(
            f"The tiles should have {4 * int(edges[-1]):,} bytes, but {len(body) - reader.position:,} follow the table."
        )
    words = np.zeros(edges[-1] + LANES, dtype="<u4")  # a copy: aligned, and with words behind its end
    words[:-LANES] = body[reader.position :].view("<u4")
    slots = table.for_reading()
    values = np.empty(d, dtype=level_dtype(table.largest))
    ends = np.empty(tiles, dtype=np.int64)

    def work(first: int, last: int) -> None:
        states = np.empty(LANES, dtype=np.uint64)
        for tile in range(first, last):
            target = values[tile * TILE : (tile + 1) * TILE]
            ends[tile] = kernels.decode_tile(words, edges[tile], slots, states, target)

    over_ranges(work, tiles, _SMALLEST)
    if (ends != edges[1:]).any():
        bad = int(np.flatnonzero(ends != edges[1:])[0])
        raise FrameError(f"The stream of tile {bad} does not end where it should: the sender is at fault.")
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
