"""The forms of a segment of `mixed`, one number each: what its levels stand for, in both directions.

- 0 to 96: dithered, with a gain of that many 64ths.
- 127: on the hexagonal lattice.
- -k: rotated, to the nearest multiple of a step of `width(k)` rms, put back at the mean of a Gaussian in its cell.

The scale of a segment is its step if it is dithered or on the lattice, and EDEN's factor if it is rotated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..threads import over_ranges
from .centroid import CLIP, nearest_steps
from .dithered import inverses, undo_pieces
from .gaussian import step_means
from .lattice import nearest_points, points_without_dither
from .rotation import Turned, sign_keys, turn_blocks
from .segments import Segments
from .streams import split_key
from .vectors import square_sums

DITHERED, LATTICE = 0, 127
GAIN_UNIT, MOST_GAIN = 64, 96
FINE, COARSE = 64, 512  # widths per octave below and above 1 rms: a small change of a wide step saves many bytes
WIDTHS = range(1, 6 * FINE + 4 * COARSE + 2)  # from 2^-6 to 2^4 rms
_HEXAGON = math.sqrt(2 / math.sqrt(3))  # steps that make a hexagon of the same area as a square
HEXAGON_ERROR = 5 / 72 * _HEXAGON**2  # of an element, in squares of a step

Floats = npt.NDArray[np.float64]


def width(k: Any) -> Any:
    """The step of rotated coordinates for the form -k, a number or an array, in units of the rms.

    >>> width(np.array([1, 385, 2433])).tolist()
    [0.015625, 1.0, 16.0]
    """
    above = k - 1 - 6 * FINE
    return np.exp2(np.minimum(above, 0) / FINE + np.maximum(above, 0) / COARSE)


def as_sent(steps: Floats) -> Floats:
    """Rounded to float32, as the receiver gets them."""
    return steps.astype(np.float32).astype(np.float64)


def runs(forms: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """First and last (exclusive) of consecutive segments of the same form.

    >>> list(runs(np.array([0, 0, 127, -5])))
    [(0, 2), (2, 3), (3, 4)]
    """
    edges = np.flatnonzero(np.concatenate([[True], np.diff(forms) != 0, [True]]))
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def to_lattice(
    x: npt.NDArray[np.float32], parts: Segments, key: int, steps: Floats
) -> tuple[npt.NDArray[np.int32], Floats]:
    """The points of all segments, and their steps: of cells as large as with dither and `steps`."""
    wider, values = as_sent(_HEXAGON * steps), np.empty(len(x), dtype=np.int32)
    (low, high), (bounds, owner), inverse = split_key(key), parts.pieces, inverses(wider.astype(np.float32), 1)

    def work(first: int, last: int) -> None:
        nearest_points(x, bounds, owner, inverse, low, high, values, first, last)

    over_ranges(work, len(owner), smallest=4)
    return values, wider


def to_rotated(
    x: npt.NDArray[np.float32],
    parts: Segments,
    key: int,
    forms: npt.NDArray[np.int64],
    values: npt.NDArray[np.int32],
    scales: Floats,
) -> None:
    """values and scales = those of the segments that are rotated."""
    if not (forms < 0).any():
        return
    turned = Turned(np.empty_like(x), parts, np.sqrt(square_sums(x, parts) / parts.lengths))
    offsets, inverse, (low, high) = parts.offsets, turned.inverse, sign_keys(key)
    steps, dots = width(-forms), np.zeros(parts.count)
    for first, last in runs(forms):
        if forms[first] < 0:
            centres = _centres(-int(forms[first]))

            def work(a: int, b: int, first: int = first, centres: Floats = centres) -> None:
                turn_blocks(x, offsets, low, high, True, turned.y, first + a, first + b)
                top = len(centres) - 1
                nearest_steps(turned.y, offsets, inverse, steps, top, centres, values, dots, first + a, first + b)

            over_ranges(work, last - first, smallest=2)
    scales[forms < 0] = turned.scales(dots)[forms < 0]


def from_forms(
    levels: npt.NDArray[np.signedinteger],
    parts: Segments,
    key: int,
    scales: npt.NDArray[np.float32],
    numbers: npt.NDArray[np.float32],
) -> npt.NDArray[np.float32]:
    """The vector that the levels of segments with these scales and forms stand for."""
    forms, steps, (low, high) = numbers.astype(np.int64), scales.astype(np.float64), split_key(key)
    values, out = levels.astype(np.int32, copy=False), np.empty(len(levels), dtype=np.float32)
    (bounds, owner), gains = parts.pieces, forms / GAIN_UNIT
    kinds = np.where((forms >= 0) & (forms != LATTICE), DITHERED, forms)

    def dithered(a: int, b: int) -> None:
        undo_pieces(values, bounds, owner, steps, gains, low, high, out, a, b)

    def lattice(a: int, b: int) -> None:
        points_without_dither(values, bounds, owner, steps, low, high, out, a, b)

    for first, last in runs(kinds):
        if kinds[first] < 0:
            _from_rotated(values, parts, key, _centres(-int(kinds[first])), steps, out, first, last)
        else:
            _over(parts, first, last, lattice if kinds[first] == LATTICE else dithered)
    return out


def _from_rotated(
    values: npt.NDArray[np.int32],
    parts: Segments,
    key: int,
    centres: Floats,
    scales: Floats,
    out: npt.NDArray[np.float32],
    first: int,
    last: int,
) -> None:
    """out = scale D H c(level); levels beyond the last centre count as that."""
    here = slice(int(parts.offsets[first]), int(parts.offsets[last]))
    each = np.repeat(scales[first:last], parts.lengths[first:last])
    sizes = centres[np.minimum(np.abs(values[here]), len(centres) - 1)]
    out[here] = np.copysign(sizes, values[here]) * each
    low, high = sign_keys(key)

    def work(a: int, b: int) -> None:
        turn_blocks(out, parts.offsets, low, high, False, out, first + a, first + b)

    over_ranges(work, last - first, smallest=2)


def _centres(k: int) -> Floats:
    """What the levels of the form -k stand for, up to 16 rms."""
    return step_means(width(k), math.ceil(CLIP / width(k)))


def _over(parts: Segments, first: int, last: int, work: Callable[[int, int], None]) -> None:
    """The pieces of the segments first to last, shared by the threads."""
    start, stop = np.searchsorted(parts.pieces[1], [first, last]).tolist()
    over_ranges(lambda a, b: work(start + a, start + b), stop - start, smallest=4)
