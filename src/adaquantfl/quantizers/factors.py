"""Factors of the rows and columns of a weight matrix, by which `shaped` divides an update before it is quantized.

A matrix is a run of the vector's elements, row after row. Its rows are cut into groups of equal size, of which the last
may be smaller, and so are its columns. A group has an exponent e from 0 to 63 and the factor 2^(-e / 4): from 1 down.
The factor of an element is that of its row times that of its column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..threads import over_ranges

Codes = npt.NDArray[np.int64]

MOST_EXPONENT = 63
DIFFERENCES = 64  # in the first byte of an axis, besides its centre
REMAINDERS = range(8)  # widths of what a Rice code adds to its quotient, in bits
LEAST_MATRIX = 64  # elements
_TILE = 65_536  # elements that are multiplied at a time, and stay in the cache


def most_matrices(dimension: int) -> int:
    """That a frame may have: each takes a receiver's time, however small it is.

    >>> most_matrices(1_000), most_matrices(1_000_000)
    (16, 992)
    """
    return 16 + dimension // 1024


@dataclass(frozen=True)
class Axis:
    """The rows or the columns of a matrix. group: how many neighbours share an exponent; 0: all factors are 1.

    exponents: a byte for each group.

    >>> Axis(3, 2, bytes([0, 4])).factors().tolist()
    [1.0, 1.0, 0.5]
    """

    size: int
    group: int = 0
    exponents: bytes = b""

    @property
    def groups(self) -> int:
        return -(-self.size // self.group) if self.group else 0

    def factors(self, power: float = 1.0) -> npt.NDArray[np.float64]:
        """The factor of each row or column, to this power."""
        if not self.group:
            return np.ones(self.size)
        each = np.exp2(-power / 4 * np.frombuffer(self.exponents, dtype=np.uint8))
        return np.repeat(each, self.group)[: self.size]


@dataclass(frozen=True)
class Matrix:
    """A matrix with factors; start: the index of its first element in the vector."""

    start: int
    rows: Axis
    columns: Axis

    @property
    def stop(self) -> int:
        """The index behind its last element."""
        return self.start + self.rows.size * self.columns.size


def multiply(vector: npt.NDArray[np.float32], matrices: Sequence[Matrix], power: float = 1.0) -> None:
    """Each element of the matrices times its factor to this power, in place.

    >>> x = np.ones(4, dtype=np.float32)
    >>> multiply(x, [Matrix(0, Axis(2, 1, bytes([0, 4])), Axis(2, 1, bytes([0, 8])))])
    >>> x.tolist()
    [1.0, 0.25, 0.5, 0.125]
    """
    for one in matrices:
        rows, columns = (axis.factors(power).astype(np.float32) for axis in (one.rows, one.columns))
        values, step = vector[one.start : one.stop].reshape(len(rows), -1), max(1, _TILE // len(columns))

        def work(
            first: int,
            last: int,
            rows: npt.NDArray[np.float32] = rows,
            columns: npt.NDArray[np.float32] = columns,
            values: npt.NDArray[np.float32] = values,
            step: int = step,
        ) -> None:
            for tile in range(first, last):
                here = slice(tile * step, (tile + 1) * step)
                values[here] *= rows[here, None] * columns

        over_ranges(work, -(-len(rows) // step), smallest=4)


def ways(exponents: bytes) -> tuple[tuple[int, Codes], tuple[int, Codes]]:
    """The two ways to write exponents: the first byte, and a code of 0 or more for each.

    Codes are differences from the median, or from one exponent to the next; 0, -1, 1, -2, ... become 0, 1, 2, 3, ...

    >>> [(first, codes.tolist()) for first, codes in ways(bytes([5, 5, 6, 4]))]
    [(5, [0, 0, 2, 1]), (69, [0, 0, 2, 3])]
    """
    e = np.frombuffer(exponents, dtype=np.uint8).astype(np.int64)
    centre = int(np.sort(e)[len(e) // 2])
    return (centre, _folded(e - centre)), (int(e[0]) + DIFFERENCES, _folded(np.diff(e, prepend=e[0])))


def code_bits(codes: Codes, width: int) -> int:
    """What a Rice code with remainders of this width takes.

    >>> code_bits(np.array([0, 0, 2, 1]), 1)
    9
    """
    return int((codes >> width).sum()) + (width + 1) * len(codes)


def _folded(differences: Codes) -> Codes:
    return np.where(differences < 0, -2 * differences - 1, 2 * differences)
