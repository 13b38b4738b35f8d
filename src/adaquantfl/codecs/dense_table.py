"""The dense codec's table: which interval of 2^e levels has which share of the 4096 slots.

`LevelTable.of` chooses it for a histogram, `to_bytes` and `read` are its wire form, `for_writing` and `for_reading` are
the shapes that the kernels take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..threads import over_ranges
from .frame import TILE
from .kernels import tables as kernels
from .kernels.dense import ROW, SLOT
from .kernels.dense import histogram as count
from .kernels.tables import SLOTS
from .varints import read_varints, varint

MOST_WIDTH = 16  # bits: an interval of 2^16 levels
TILES_EACH = 2  # tiles a thread takes at least
_FEW = 32  # numbers: that many are written and read one by one
_WIDTH_BITS = 5  # of what is packed into a SLOT
_TOO_LONG = "A number of the table is not written in one to three bytes, as few as it needs."

Counts = npt.NDArray[np.int64]


class Writing(NamedTuple):
    """The bytes of a table, its lowest level, the interval of each level from there on, and each interval's ROW."""

    head: bytes
    lowest: int
    intervals: npt.NDArray[np.uint16]
    rows: npt.NDArray[np.void]


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
class LevelTable:
    """Disjoint intervals of levels, ascending: `lowest` up to lowest + 2^width - 1 has `frequency` of the slots."""

    columns: npt.NDArray[np.int64]  # lowest levels, widths, frequencies; contiguous, so that kernels compile once

    @staticmethod
    def of(counts: Counts, widest: int = MOST_WIDTH) -> tuple[LevelTable, float]:
        """The table for a histogram, and the bits that the histogram's levels take with it."""
        size, table = 2 * len(counts), np.zeros((5, min(len(counts), SLOTS)), dtype=np.int64)
        scratch = np.empty(size), np.empty(size), np.empty(size, np.int8)
        found, price = SLOTS + 1, 1.0
        while found > SLOTS:  # then places in the table become dearer
            found = kernels.intervals(counts, widest, price, *scratch, table)
            price *= 4
        content: float = kernels.shares(table, found)
        return LevelTable(table[:3, :found].copy()), content

    @property
    def largest(self) -> int:
        """The largest magnitude of a level that the table can express, at least 1."""
        return max(1, -int(self.columns[0, 0]), self._end - 1)

    @property
    def _end(self) -> int:
        return int(self.columns[0, -1]) + (1 << int(self.columns[1, -1]))

    def to_bytes(self, s: int) -> bytes:
        """Runs of adjacent intervals of one width: levels skipped, width, how many, their frequencies."""
        out = np.empty(kernels.MOST_BYTES * self.columns.shape[1], np.uint8)
        return out[: kernels.write(self.columns, s, out)].tobytes()

    def for_writing(self, s: int) -> Writing:
        """What a narrow body with this table begins with, and what its levels are written with."""
        rows = np.empty((self.columns.shape[1], ROW.itemsize // 8), np.uint64)
        index, lowest = np.empty(self._end - self.columns[0, 0], np.uint16), int(self.columns[0, 0])
        kernels.rows_of(self.columns, index, rows)
        return Writing(self.to_bytes(s), lowest, index, rows.reshape(-1).view(ROW))

    @staticmethod
    def read(reader: Reader, s: int, widest: int = MOST_WIDTH) -> LevelTable:
        """The reverse of to_bytes; the table ends where the frequencies add up to 4096."""
        table, seen = np.empty((3, min(2 * s + 1, SLOTS)), dtype=np.int64), np.array([reader.position, 0, 0, 0])
        found = kernels.read(reader.body, s, widest, seen, table)
        reader.position, level, width, count = seen.tolist()
        if found == kernels.TRUNCATED:
            raise FrameError("Truncated: the body ends within its table.")
        if found == kernels.NUMBER:
            raise FrameError(_TOO_LONG)
        if found == kernels.WIDTH:
            raise FrameError(f"The table has an interval of 2^{width} levels; 2^{widest} is the limit.")
        if found == kernels.COUNT:
            raise FrameError(f"The table has {count:,} intervals of 2^{width} levels at {level}, with s = {s}.")
        if found == kernels.FREQUENCY:
            raise FrameError(f"The table's frequencies have a zero or add up to more than {SLOTS}.")
        return LevelTable(table[:, :found].copy())

    def for_reading(self) -> npt.NDArray[np.void]:
        """Each slot's interval, as decode_tile takes it."""
        return slots(self.columns, _WIDTH_BITS).view(SLOT)


def slots(columns: npt.NDArray[np.int64], width_bits: int) -> npt.NDArray[np.uint64]:
    """Each slot's frequency, its place among its interval's, and the interval: lowest 2^width_bits + width."""
    out = np.empty(SLOTS, np.uint64)
    kernels.slots(columns, width_bits, out)
    return out


def shares(symbols: Counts, elements: Counts) -> tuple[npt.NDArray[np.int64], float]:
    """Symbols with their shares of the 4096 slots, as columns of a table, and the bits that all elements then take."""
    table = np.zeros((5, len(symbols)), dtype=np.int64)
    table[0], table[3] = symbols, elements
    content: float = kernels.shares(table, len(symbols))
    return table[:3], content


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
