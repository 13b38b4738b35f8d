"""By which factors to divide the rows and columns of a tensor: those with the least error at equal bytes.

Gaussian elements with R bits each come back with an error of h(R) = 1 / (4^R - 1) of their energy. Divided by F and
multiplied by F again, their error is h(R) mean(x^2 / F^2) mean(F^2). With a factor for each row it is least where F^2 is
proportional to the row's rms. So a row with a tenth of the rms of another has a tenth of its noise's energy.

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
from .rotation import LARGEST_BLOCK
from .trial import Vector, can_be_gaussian, finest_width

LEAST = 1024  # elements of a tensor that is looked at
_SAMPLE = 16_384  # elements by which ways to divide a tensor are compared
_MOST = 24  # the largest exponent: a line of that much less energy counts as 0
_PAYS = 0.97  # of the error without factors: it has to be worth the work
_HEAD_BITS = 32  # of a matrix with one axis: its place, its sizes, the group
_TILE = 65_536
_TRIALS = 8


def shaping(x: Vector, shape: tuple[int, ...], levels: float, start: int) -> tuple[Matrix, float] | None:
    """The best factors of a tensor, and how many times as wide its steps are to be; None where factors do not pay.

    levels: of its norm, as `mixed` would have without factors. With the wider steps it takes as many bits as that. start:
    the tensor's place in the vector.
    """
    n, best = len(x), None
    if len(shape) < 2 or n < LEAST:
        return None
    places = _places(n)
    sample = x[places].astype(np.float64)
    asked, error = _outlook(sample, np.ones(len(sample)), levels, n)
    allowed = _PAYS * error
    for rows in sorted({shape[0], n // shape[-1]}):
        for one in _candidates(x.reshape(rows, -1), asked, start):
            squares = _squares(one, places)
            bits, error = _outlook(sample / np.sqrt(squares), squares, levels, n)
            left = asked - _side_bits(one) / n
            if left > 0 and (error := error * _ratio(left, bits)) < allowed:
                best, allowed = (one, squares, left), error
    if best is None:
        return None
    one, squares, left = best
    return one, _wider(sample / np.sqrt(squares), levels, n, left)


def _candidates(matrix: npt.NDArray[np.float32], bits: float, start: int) -> Iterator[Matrix]:
    """Factors for rows, for columns, and for both: those of one axis with those of the other at work."""
    height, breadth = matrix.shape
    if min(height, breadth) < 2:
        return
    plain, n = (Axis(height), Axis(breadth)), matrix.size
    by_row, by_column = _energies(matrix, *plain)
    rows, columns = _axis(by_row, bits, n), _axis(by_column, bits, n)
    if rows.group:
        yield Matrix(start, rows, plain[1])
        rest = bits - _axis_bits(rows) / n
        columns = _axis(_energies(matrix, rows, plain[1])[1], rest, n)
    elif columns.group:
        yield Matrix(start, plain[0], columns)
    if columns.group:
        rows = _axis(_energies(matrix, plain[0], columns)[0], bits - _axis_bits(columns) / n, n)
        yield Matrix(start, rows, columns)


def _axis(energies: Floats, bits: float, n: int) -> Axis:
    """The factors of lines with these energies, in groups of the best size. bits: per element, of n."""
    size, total = len(energies), energies.sum()
    best, least, group = Axis(size), 1.0, 1
    while group < size and total > 0:
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
        group *= 2
    return best


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
    k = finest_width(n, n * bits)
    if k:
        large = min(n, LARGEST_BLOCK) * energy**2 / float(np.mean(np.square(y * y)))
        if can_be_gaussian(large, width(k)):
            error = min(error, step_error(width(k)) * energy * float(squares.mean()))
    return bits, error


def _wider(y: Floats, levels: float, n: int, bits: float) -> float:
    """How many times as wide steps take so few bits per element."""
    low, high = 0.25, 16.0
    for _ in range(_TRIALS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _outlook(y, np.ones(len(y)), levels / middle, n)[0] > bits else (low, middle)
    return high


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
    squares: Floats = one.rows.factors(2)[places // one.columns.size] * one.columns.factors(2)[places % one.columns.size]
    return squares
