"""By which factors to divide the rows and columns of a tensor: those with the least error at equal bytes.

Gaussian elements with R bits each come back with an error of h(R) = 1 / (4^R - 1) of their energy. Divided by F and
multiplied by F again, their error is h(R) mean(x^2 / F^2) mean(F^2). With a factor for each row it is least where F^2
is proportional to the row's rms. So a row with a tenth of the rms of another has a tenth of its noise's energy.

Neighbouring columns of a layer behind a convolution belong to one channel. A factor for a group of neighbours is nearly
as good as one for each, and takes fewer bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .factors import REMAINDERS, Axis, Matrix, code_bits, ways
from .forms import Floats, width
from .gaussian import step_error
from .segments import Segments
from .trial import COARSE, SIDE_BITS, Vector, becomes_gaussian, finest_width, longest_block, units_of

Shape = tuple[int, ...]

LEAST = 1024  # elements of a tensor that is looked at
_SAMPLE = 16_384  # elements by which ways to divide a tensor are compared
_MOST = 24  # the largest exponent: a line of that much less energy counts as 0
_PAYS = 0.95  # of the error without factors, at most: a sample does not tell it exactly
_HEAD_BITS = 32  # of a matrix with one axis: its place, its sizes, the group
_TILE = 65_536
_TRIALS, _CLOSE = 4, 0.03  # to find the step that takes as many bits as are left


def shaping(x: Vector, shape: Shape, levels: float, start: int) -> tuple[Matrix, float] | None:
    """The best factors of a tensor, and how many times as wide its steps are to be; None where factors do not pay.

    levels: of its norm, as `mixed` would have without factors. With the wider steps it takes as many bits as that.
    start: the tensor's place in the vector.
    """
    n, best = len(x), None
    if len(shape) < 2 or n < LEAST:
        return None
    places = _places(n)
    sample = x[places].astype(np.float64)
    if not sample.any():  # so sparse that there is nothing to even out
        return None
    asked, error = _outlook(sample, np.ones(len(sample)), levels, n)
    allowed = _PAYS * error
    for cut in sorted({1, len(shape) - 1}):
        for one in _candidates(x, shape[:cut], shape[cut:], asked, start):
            left = asked - _side_bits(one) / n
            if left > 0:
                wider, error = _at_bits(sample, _squares(one, places), levels, n, left)
                if error < allowed:
                    best, allowed = (one, wider), error
    return best


def _candidates(x: Vector, down: Shape, across: Shape, bits: float, start: int) -> Iterator[Matrix]:
    """Factors for rows, for columns, and for both: those of one axis with those of the other at work.

    down, across: the dimensions of the tensor that are its rows, and those that are its columns.
    """
    plain, n = (Axis(math.prod(down)), Axis(math.prod(across))), len(x)
    if min(plain[0].size, plain[1].size) < 2:
        return
    matrix = x.reshape(plain[0].size, -1)
    by_row, by_column = _energies(matrix, *plain)
    rows, columns = _axis(by_row, down, bits, n), _axis(by_column, across, bits, n)
    if columns.group:
        yield Matrix(start, plain[0], columns)
    if rows.group:
        yield Matrix(start, rows, plain[1])
        columns = _axis(_energies(matrix, rows, plain[1])[1], across, bits - _axis_bits(rows) / n, n)
    if columns.group:
        rows = _axis(_energies(matrix, plain[0], columns)[0], down, bits - _axis_bits(columns) / n, n)
        yield Matrix(start, rows, columns)


def _axis(energies: Floats, dimensions: Shape, bits: float, n: int) -> Axis:
    """The factors of lines with these energies, in groups of the best size. bits: per element, of n."""
    size, total = len(energies), energies.sum()
    best, least = Axis(size), 1.0
    for group in _groups(dimensions) if total > 0 else ():
        edges = np.arange(0, size, group)
        lengths, sums = np.diff(edges, append=size), np.add.reduceat(energies, edges)
        rms = np.sqrt(sums / lengths)
        exponents = np.rint(2 * np.log2(rms.max() / np.maximum(rms, 2.0**-_MOST * rms.max())))
        exponents = np.minimum(exponents, _MOST)
        squares = np.exp2(-exponents / 2)
        axis = Axis(size, group, exponents.astype(np.uint8).tobytes())
        left = bits - _axis_bits(axis) / n
        if left > 0:
            error = (lengths @ squares) * (sums / squares).sum() / (size * total) * _ratio(left, bits)
            if error < least:
                best, least = axis, error
    return best


def _groups(dimensions: Shape) -> list[int]:
    """Sizes of groups to try: what belongs together in the last dimensions, and powers of two.

    >>> _groups((64, 5, 5))
    [1, 2, 4, 5, 8, 16, 25, 32, 64, 128, 256, 512, 1024]
    """
    size = math.prod(dimensions)
    whole = {math.prod(dimensions[place:]) for place in range(1, len(dimensions))}
    return sorted(group for group in whole | {1 << k for k in range(size.bit_length())} if group < size)


def _energies(matrix: npt.NDArray[np.float32], rows: Axis, columns: Axis) -> tuple[Floats, Floats]:
    """The squares of each row and of each column, divided by the squares of the other axis's factors."""
    over_rows, over_columns = rows.factors(-2), columns.factors(-2)
    by_row, by_column, step = np.empty(rows.size), np.zeros(columns.size), max(1, _TILE // columns.size)
    for first in range(0, rows.size, step):
        here = slice(first, first + step)
        squares = np.square(matrix[here], dtype=np.float64)
        by_row[here] = np.einsum("rc,c->r", squares, over_columns)
        by_column += np.einsum("rc,r->c", squares, over_rows[here])
    return by_row, by_column


def _outlook(y: Floats, squares: Floats, levels: float, n: int) -> tuple[float, float]:
    """What `mixed` would make of n elements such as these: bits per element, and error once they are multiplied.

    The histogram of dithered levels is the expected one, so that a sample tells it well. squares: of the factors.
    """
    energy = float(np.mean(y * y))
    sizes = np.abs(y) * (levels / math.sqrt(energy * n))
    whole = np.floor(sizes)
    up = sizes - whole
    spread, low = up * (1 - up), whole.astype(np.int64)
    counts = np.bincount(low, 1 - up, low.max() + 2) + np.bincount(low + 1, up, low.max() + 2)
    shares = counts[counts > 0] / len(y)
    bits = float(1 - counts[0] / len(y) - np.sum(shares * np.log2(shares)))  # a sign for all but 0
    gain = 6 * spread.mean()
    error = energy * n / levels**2 * float(np.mean(squares * (spread * (1 - gain) + gain**2 / 12)))
    return bits, _with_rotation(
        y, energy, bits, error, float(squares.mean()), longest_block(math.sqrt(n) >= COARSE * levels), n
    )


def _with_rotation(
    y: Floats, energy: float, bits: float, dithered: float, square: float, longest: int, n: int
) -> float:
    """The error where each block is rotated if that is better: small ones become Gaussian less easily."""
    fourth, sixth = (float(np.mean((y * y / energy) ** power)) for power in (2, 3))
    lengths, counts = np.unique(units_of(Segments.of(None, n), longest).lengths, return_counts=True)
    total = 0.0
    for size, count in zip(lengths.tolist(), counts.tolist(), strict=True):
        error, k = dithered, finest_width(size, size * bits - SIDE_BITS) if size & (size - 1) == 0 else 0
        if k and becomes_gaussian(fourth / size, sixth / size**2, width(k)):
            error = min(error, step_error(width(k)) * energy * square)
        total += count * size / n * error
    return total


def _at_bits(x: Floats, squares: Floats, levels: float, n: int, bits: float) -> tuple[float, float]:
    """How many times as wide steps take that many bits per element, and their error."""
    y, wider, slope = x / np.sqrt(squares), 1.0, 1.0
    found, error = _outlook(y, squares, levels, n)
    for _ in range(_TRIALS):
        if abs(found - bits) < _CLOSE * bits:
            break
        before, tried = found, wider
        wider *= (found / bits) ** (1 / slope)  # at low rates bits grow as levels do
        found, error = _outlook(y, squares, levels / wider, n)
        slope = min(max(math.log(before / found) / math.log(wider / tried), 0.1), 1.5)
    return wider, error * _ratio(bits, found)


def _ratio(few: float, many: float) -> float:
    """h(few) / h(many)."""
    return math.expm1(many * math.log(4)) / math.expm1(few * math.log(4))


def _side_bits(one: Matrix) -> int:
    return _axis_bits(one.rows) + _axis_bits(one.columns)


def _axis_bits(axis: Axis) -> int:
    if not axis.group:
        return 0
    return _HEAD_BITS + min(code_bits(codes, k) for _, codes in ways(axis.exponents) for k in REMAINDERS)


def _places(n: int) -> npt.NDArray[np.int64]:
    """Elements that lie evenly over the tensor, and over its rows and columns."""
    if n <= _SAMPLE:
        return np.arange(n)
    golden = (math.sqrt(5) - 1) / 2
    return (np.arange(_SAMPLE) * golden % 1 * n).astype(np.int64)


def _squares(one: Matrix, places: npt.NDArray[np.int64]) -> Floats:
    """The squared factors of these elements of the matrix."""
    rows, columns = np.divmod(places, one.columns.size)
    squares: Floats = one.rows.factors(2)[rows] * one.columns.factors(2)[columns]
    return squares
