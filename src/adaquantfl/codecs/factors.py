"""The factors of rows and columns in a frame's header: docs/wire-format.md specifies these bytes.

Codes are written as differences from a centre, or from the one before, in a Rice code: all quotients in unary
first, then all remainders. So both ends work on arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..quantizers.factors import (
    DIFFERENCES,
    LEAST_MATRIX,
    MOST_EXPONENT,
    REMAINDERS,
    Axis,
    Codes,
    Matrix,
    code_bits,
    most_matrices,
    ways,
)  # fmt: skip
from .varints import read_varint, varint


def pack_factors(matrices: Sequence[Matrix]) -> bytes:
    """The factors of a frame as bytes: of all ways to write them the shortest, the first of several."""
    axes = [axis for one in matrices for axis in (one.rows, one.columns) if axis.group]
    if not matrices:
        return varint(0)
    written = [ways(axis.exponents) for axis in axes]
    sizes = [sum(min(code_bits(a, k), code_bits(b, k)) for (_, a), (_, b) in written) for k in REMAINDERS]
    k = sizes.index(min(sizes))
    chosen = iter([min(pair, key=lambda one: code_bits(one[1], k)) for pair in written])
    out, codes, end = [varint(len(matrices))], [np.empty(0, dtype=np.int64)], 0
    for one in matrices:
        out += [varint(one.start - end), varint(one.rows.size), varint(one.columns.size)]
        for axis in (one.rows, one.columns):
            out.append(varint(axis.group))
            if axis.group:
                first, code = next(chosen)
                out.append(bytes([first]))
                codes.append(code)
        end = one.stop
    block = _rice(np.concatenate(codes), k)
    return b"".join([*out, bytes([k]), varint(len(block)), block])


def read_factors(view: memoryview, position: int, dimension: int) -> tuple[tuple[Matrix, ...], int]:
    """The factors at this position, and the position behind them; FrameError on anything else."""
    count, position = read_varint(view, position)
    if count > most_matrices(dimension):
        raise FrameError(f"{count:,} matrices are too many for a vector of {dimension:,} elements.")
    if not count:
        return (), position
    matrices, firsts, end = [], [], 0
    for _ in range(count):
        skipped, position = read_varint(view, position)
        sizes, position = _two(view, position)
        axes = []
        for size in sizes:
            group, position = read_varint(view, position)
            if group:
                first, position = _byte(view, position)
                firsts.append(first)
            axes.append(Axis(size, group))
        matrices.append(Matrix(end + skipped, *axes))
        end = matrices[-1].stop
        _check_place(matrices[-1], dimension)
    k, position = _byte(view, position)
    size, position = read_varint(view, position)
    groups = [axis.groups for one in matrices for axis in (one.rows, one.columns) if axis.group]
    if k not in REMAINDERS or position + size > len(view) or sum(groups) * (k + 1) > 8 * size:
        raise FrameError(f"{sum(groups):,} exponents do not fit {size:,} bytes with remainders of {k} bits.")
    if 8 * size > sum(groups) * ((2 * MOST_EXPONENT >> k) + 1 + k) + 7:  # before they are unpacked: it takes memory
        raise FrameError("The exponents of the factors do not fill their bytes.")
    codes = _from_rice(np.frombuffer(view[position : position + size], dtype=np.uint8), sum(groups), k)
    parts = np.split(codes, np.cumsum(groups)[:-1]) if groups else []
    exponents = iter([_exponents(first, code) for first, code in zip(firsts, parts, strict=True)])
    found = [Matrix(one.start, _filled(one.rows, exponents), _filled(one.columns, exponents)) for one in matrices]
    return tuple(found), position + size


def check_factors(matrices: Sequence[Matrix], dimension: int) -> None:
    """Refuse factors that a vector of this dimension cannot have: FrameError."""
    end = 0
    for one in matrices:
        _check_place(one, dimension)
        if one.start < end:
            raise FrameError("The matrices of a frame overlap, or are not in their order.")
        end = one.stop
        for axis in (one.rows, one.columns):
            count = len(axis.exponents)
            if count != axis.groups:
                raise FrameError(f"{axis.size:,} lines in groups of {axis.group:,} do not have {count:,} exponents.")
            if max(axis.exponents, default=0) > MOST_EXPONENT:
                raise FrameError(f"An exponent of a factor is above {MOST_EXPONENT}.")


def _check_place(one: Matrix, dimension: int) -> None:
    rows, columns = one.rows, one.columns
    if one.start < 0 or one.stop > dimension or rows.size * columns.size < LEAST_MATRIX:
        raise FrameError(
            f"A matrix of {rows.size:,} x {columns.size:,} elements is too small, or beyond dimension {dimension:,}."
        )
    if not (0 <= rows.group <= rows.size and 0 <= columns.group <= columns.size):
        raise FrameError("A group of rows or columns is larger than the matrix.")


def _filled(axis: Axis, exponents: Iterator[bytes]) -> Axis:
    return Axis(axis.size, axis.group, next(exponents)) if axis.group else axis


def _exponents(first: int, code: Codes) -> bytes:
    if first >= 2 * DIFFERENCES:
        raise FrameError(f"An axis begins with the byte {first}; it is at most {2 * DIFFERENCES - 1}.")
    differences = np.where(code & 1, -(code + 1) // 2, code // 2)
    centre = first % DIFFERENCES
    found = centre + (np.cumsum(differences) if first >= DIFFERENCES else differences)
    if found.min() < 0 or found.max() > MOST_EXPONENT:
        raise FrameError(f"An exponent of a factor is outside 0 to {MOST_EXPONENT}.")
    return found.astype(np.uint8).tobytes()


def _rice(code: Codes, k: int) -> bytes:
    ends = np.cumsum((code >> k) + 1)
    unary = np.ones(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    unary[ends - 1] = 0
    low = (code[:, None] >> np.arange(k)) & 1
    return np.packbits(np.concatenate([unary, low.ravel().astype(np.uint8)]), bitorder="little").tobytes()


def _from_rice(block: npt.NDArray[np.uint8], count: int, k: int) -> Codes:
    bits = np.unpackbits(block, bitorder="little")
    ends = np.flatnonzero(bits == 0)[:count]
    start = int(ends[-1]) + 1 if count and len(ends) == count else 0
    rest = bits[start + count * k :]
    if len(ends) < count or start + count * k > len(bits) or len(rest) >= 8 or rest.any():
        raise FrameError("The exponents of the factors do not fill their bytes.")
    low = bits[start : start + count * k].reshape(count, k).astype(np.int64) @ (1 << np.arange(k, dtype=np.int64))
    return (np.diff(ends, prepend=-1) - 1 << k) + low


def _byte(view: memoryview, position: int) -> tuple[int, int]:
    if position >= len(view):
        raise FrameError("Truncated: the header ends within its factors.")
    return view[position], position + 1


def _two(view: memoryview, position: int) -> tuple[tuple[int, int], int]:
    first, position = read_varint(view, position)
    second, position = read_varint(view, position)
    return (first, second), position
