"""The code for updates that are almost all zero: where the others are, in gaps, and then what few bits they need.

Gaps between non-zero elements are geometric where the density is even. The Golomb code is the best prefix code for such
gaps (Gallager and van Voorhis 1975). Its divisor follows the running mean of the gaps, because layers differ.
docs/wire-format.md is the specification.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..memory import LARGE, done, empty
from ..quantizers.levels import Levels, level_dtype
from ..quantizers.uniform import Prepared
from ..threads import WORTH_A_THREAD, over_ranges
from .frame import TILE, Frame, Header, Known, Part, framed
from .header import Floats, Lengths, Offsets
from .kernels import nonzeros
from .kernels import sparse as kernels
from .kernels.quantizing import ROW
from .sparse_size import LEAST_SHIFT, chunk_shift
from .varints import read_varints, varint

NAME = "sparse"
TAG = 1
_MOST_SHIFT = 32  # a chunk of 2^32 elements holds any vector
_WRONG = {
    kernels.RUNS_OUT: "its codes run past its end",
    kernels.BEYOND_CHUNK: "a gap leads past its last element",
    kernels.TOO_MANY: "it marks more elements as large than there are",
    kernels.ABOVE_S: "a level is above s",
    kernels.TRAILING: "bytes are left over behind its last code",
    kernels.PADDING: "the unused bits of its last byte are not 0",
}

# (first tile, last tile, index, level, found so far) -> (tile to continue with, found)
_Find = Callable[[int, int, npt.NDArray[np.uint32], npt.NDArray[np.int32], int], tuple[int, int]]


@dataclass(frozen=True)
class Nonzeros:
    """The elements that are not zero, in order, and how many there are in each tile."""

    index: npt.NDArray[np.uint32]
    level: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]

    @staticmethod
    def of_levels(values: npt.NDArray[np.signedinteger]) -> Nonzeros:
        """Those of levels in memory."""
        counts = np.zeros(-(-len(values) // TILE), dtype=np.int64)

        def find(
            first: int, last: int, index: npt.NDArray[np.uint32], level: npt.NDArray[np.int32], found: int
        ) -> tuple[int, int]:
            slots = np.empty(ROW + 1, dtype=np.uint8)
            return nonzeros.find(values, first, last, slots, counts, index, level, found)  # type: ignore[no-any-return]

        return Nonzeros(*_collect(find, len(values)), counts)

    @staticmethod
    def of_floats(ready: Prepared, s: int, low: np.uint32, high: np.uint32) -> Nonzeros:
        """Those that quantizing gives, in one pass over the floats."""
        counts = np.zeros(-(-ready.segments.dimension // TILE), dtype=np.int64)
        offsets = ready.segments.offsets

        def find(
            first: int, last: int, index: npt.NDArray[np.uint32], level: npt.NDArray[np.int32], found: int
        ) -> tuple[int, int]:
            row, rest = np.empty(ROW, dtype=np.int32), np.empty(ROW, dtype=np.float32)
            slots = np.empty(ROW + 1, dtype=np.uint8)
            floats = ready.x, offsets, ready.inverse, ready.top, low, high
            return nonzeros.quantize_find(  # type: ignore[no-any-return]
                *floats, first, last, row, rest, slots, counts, index, level, found
            )

        return Nonzeros(*_collect(find, ready.segments.dimension), counts)

    def values(self, dimension: int, s: int) -> npt.NDArray[np.signedinteger]:
        """All levels."""
        values = np.zeros(dimension, dtype=level_dtype(s))
        values[self.index] = self.level
        return values


def encode(levels: Levels, known: Known | None = None) -> bytes:
    """Levels to a frame."""
    return framed(Header.of(levels, TAG), body_parts(Nonzeros.of_levels(levels.values), levels.dimension), known)


def compress(
    ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: Lengths, known: Known | None = None
) -> bytes:
    """Floats to a frame in one pass: the bytes that `encode` gives for the levels of `quantize`."""
    d = ready.segments.dimension
    found = Nonzeros.of_floats(ready, s, low, high)
    return framed(Header(ready.tag, TAG, s, d, segments, ready.scales), body_parts(found, d), known)


def open_body(frame: Frame) -> SparseBody:
    """Decode every non-zero element, checking all there is to check."""
    header, body, top = frame.header, frame.body, frame.header.top
    shift, counts, lengths, start = _read_directory(body, header.dimension)
    edges = [0, *accumulate(counts)]
    ends = [*accumulate(lengths, initial=start)][1:]
    words = empty(len(body) // 8 + 3, "<u8")
    words[len(body) // 8 :] = 0
    words.view(np.uint8)[: len(body)] = body
    index, level = empty(edges[-1], np.uint32), empty(edges[-1], np.int32)

    def work(first: int, last: int) -> None:
        places = empty(max(counts[first:last]), np.int64)
        for chunk in range(first, last):
            begin, end, mine = ends[chunk] - lengths[chunk], ends[chunk], slice(edges[chunk], edges[chunk + 1])
            if mine.start == mine.stop:
                continue
            origin = chunk << shift
            size = min(1 << shift, header.dimension - origin)
            wrong = kernels.decode_chunk(words, 8 * begin, 8 * end, origin, size, top, places, index[mine], level[mine])
            if wrong:
                raise FrameError(f"Chunk {chunk:,} of the sparse body is damaged: {_WRONG[wrong]}.")
        done(places)

    over_ranges(work, len(counts), smallest=4 if len(body) > WORTH_A_THREAD else len(counts))
    done(words)
    return SparseBody(header.dimension, index, level)


@dataclass(frozen=True)
class SparseBody:
    """A checked body: the elements that are not zero, in order."""

    dimension: int
    index: npt.NDArray[np.uint32]
    level: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Memory that the body keeps."""
        return self.index.nbytes + self.level.nbytes

    def decode(self, values: npt.NDArray[np.signedinteger]) -> None:
        values[:] = 0
        values[self.index] = self.level

    def add(self, steps: Floats, offsets: Offsets, total: Floats, first: int, last: int) -> None:
        nonzeros.accumulate(self.index, self.level, offsets, steps, total, first, last)


def _collect(find: _Find, dimension: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]:
    """All non-zero elements in order; each thread collects those of its range of tiles."""
    parts: dict[int, tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]] = {}

    def work(first: int, last: int) -> None:
        elements = min(dimension, last * TILE) - first * TILE
        room = min(elements, 2 * TILE + elements // 64) + 1
        index, level = empty(room, np.uint32), empty(room, np.int32)
        tile, found = find(first, last, index, level, 0)
        while tile < last:  # denser than expected
            room = min(elements, 2 * room) + 1
            index = np.concatenate([index[:found], np.empty(room - found, dtype=np.uint32)])
            level = np.concatenate([level[:found], np.empty(room - found, dtype=np.int32)])
            tile, found = find(tile, last, index, level, found)
        parts[first] = index[:found], level[:found]

    over_ranges(work, -(-dimension // TILE), smallest=4)
    if len(parts) == 1:
        return parts[0]
    ordered = [parts[first] for first in sorted(parts)]
    return np.concatenate([index for index, _ in ordered]), np.concatenate([level for _, level in ordered])


def body_parts(found: Nonzeros, dimension: int) -> list[Part]:
    """The parts of a body, from the elements that are not zero."""
    index, level = found.index, found.level
    shift = chunk_shift(len(index), dimension)
    edges = [0, len(index)]
    if dimension > 1 << shift:
        before = np.cumsum(found.counts)
        edges[1:1] = before[(1 << shift - LEAST_SHIFT) - 1 : -1 : 1 << shift - LEAST_SHIFT].tolist()
    chunks: list[Part] = [b""] * (len(edges) - 1)

    def work(first: int, last: int) -> None:
        most = max(b - a for a, b in pairwise(edges[first : last + 1]))
        places = empty(most, np.int64)
        words = empty(kernels.WORDS_BEFORE + kernels.WORDS_EACH * most, "<u8")
        for chunk in range(first, last):
            mine = slice(edges[chunk], edges[chunk + 1])
            if mine.start < mine.stop:
                origin = chunk << shift
                size = min(1 << shift, dimension - origin)
                bits = kernels.encode_chunk(index[mine], level[mine], origin, size, places, words)
                size = -(-bits // 8)
                if size < LARGE:
                    chunks[chunk] = words[: -(-size // 8)].tobytes()[:size]
                else:
                    copy = chunks[chunk] = empty(size, np.uint8)
                    copy[:] = words.view(np.uint8)[:size]
        done(places)
        done(words)

    over_ranges(work, len(chunks), smallest=4)
    filled = [len(chunk) for chunk in chunks if len(chunk)]
    numbers = [*(b - a for a, b in pairwise(edges)), *filled[:-1]]
    directory = bytes([shift]) + b"".join(map(varint, numbers))
    return [directory, *chunks]


def _read_directory(body: npt.NDArray[np.uint8], dimension: int) -> tuple[int, list[int], list[int], int]:
    """log2 of a chunk's elements, the count and the bytes of each chunk, and where the first one starts."""
    shift = int(body[0]) if len(body) else 0
    if not LEAST_SHIFT <= shift <= _MOST_SHIFT:
        raise FrameError(
            f"A sparse body starts with log2 of its chunks' elements, {LEAST_SHIFT} to {_MOST_SHIFT}; "
            f"this one with {shift if len(body) else 'nothing'}."
        )
    chunks = -(-dimension // (1 << shift))
    if chunks > len(body) - 1:  # each has at least one byte: refuse before anything is allocated for them
        raise FrameError(f"A directory of {chunks:,} chunks does not fit a sparse body of {len(body):,} bytes.")
    try:
        numbers, start = read_varints(body.data, 1, chunks)
        counts = numbers.tolist()
        filled = [chunk for chunk, count in enumerate(counts) if count]
        known, start = read_varints(body.data, start, max(len(filled) - 1, 0))
    except FrameError as error:
        raise FrameError(f"The directory of the sparse body is damaged. {error}") from None
    lengths, left = [0] * chunks, len(body) - start - int(known.sum())
    if filled and left < 0:
        raise FrameError(f"The chunks should have more bytes than the {len(body) - start:,} behind the directory.")
    if not filled and left:
        raise FrameError(f"All levels are 0, but {left:,} bytes lie behind the sparse body's directory.")
    for chunk, length in zip(filled, [*known.tolist(), left], strict=False):  # the last one takes what remains
        size = min(dimension - (chunk << shift), 1 << shift)
        # An element takes two bits at least, which bounds the memory by the bytes that came.
        if counts[chunk] > size or counts[chunk] > 4 * length:
            raise FrameError(
                f"Chunk {chunk:,} of the sparse body cannot hold {counts[chunk]:,} non-zero levels: "
                f"it has {size:,} elements and {length:,} bytes."
            )
        lengths[chunk] = length
    return shift, counts, lengths, start
