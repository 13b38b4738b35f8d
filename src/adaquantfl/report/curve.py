"""A small plot of a falling curve in text: two by four dots a character, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

# A Braille character's dots by row, left and right; U+2800 is the empty one.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def plot(values: Sequence[float | None], columns: int = 40, rows: int = 4, total: int | None = None) -> list[str]:
    """Lines of text with the curve of `values`, left to right, and the highest and lowest value next to it.

    `total` values would fill the width, so that a run's curve grows into its place. Values that are None, not finite or
    not above 0 leave a gap.

    >>> for line in plot([8, 4, 2, 1], columns=4, rows=2):
    ...     print(line)
       8 ⠉⠤⠀⠀
       1 ⠀⠀⠒⣀
    """
    known = _drawable(values)
    if not known:
        return []
    low, high = math.log(min(known)), math.log(max(known))
    wide, tall = 2 * columns, 4 * rows
    cells = [[0] * columns for _ in range(rows)]
    for x, value in enumerate(_spread(values, wide, max(total or 0, len(values)))):
        if value is None:
            continue
        y = round((high - math.log(value)) / ((high - low) or 1.0) * (tall - 1))
        cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    texts = ["".join(chr(0x2800 + cell) for cell in row) for row in cells]
    names = [f"{max(known):.3g}", *[""] * (rows - 2), f"{min(known):.3g}"]
    margin = max(4, *map(len, names))
    return [f"{name:>{margin}} {text}" for name, text in zip(names, texts, strict=True)]


def _spread(values: Sequence[float | None], wide: int, total: int) -> list[float | None]:
    """The value of each column of dots: the mean of those that fall on it."""
    columns: list[float | None] = []
    for x in range(wide):
        first, last = x * total / wide, (x + 1) * total / wide
        inside = _drawable(values[int(first) : max(int(first) + 1, math.ceil(last))])
        columns.append(sum(inside) / len(inside) if inside else None)
    return columns


def _drawable(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value) and value > 0]
