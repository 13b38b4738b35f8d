"""The curve in the terminal."""

from __future__ import annotations

import pytest

from adaquantfl.report.curve import plot


def dots(lines: list[str]) -> list[tuple[int, int]]:
    """(column, row) of each character that is not empty, of a plot of 20 columns."""
    return [(x, y) for y, line in enumerate(lines) for x, cell in enumerate(line[-20:]) if cell != "\u2800"]


def test_a_falling_curve_goes_from_the_upper_left_to_the_lower_right() -> None:
    lines = plot([2.0**-k for k in range(40)], columns=20, rows=4)
    rows = [y for _, y in sorted(dots(lines))]
    assert rows == sorted(rows)
    assert (rows[0], rows[-1]) == (0, 3)
    assert lines[0].split()[0] == "1"


def test_an_unfinished_run_leaves_room_for_the_rest() -> None:
    assert max(x for x, _ in dots(plot([3.0, 2.0, 1.0], columns=20, total=6))) == 9


@pytest.mark.parametrize("values", [[], [None], [float("nan"), float("inf"), 0.0, -1.0]])
def test_what_cannot_be_drawn_is_left_out(values: list[float | None]) -> None:
    assert plot(values) == []
    assert len(plot([*values, 1.0, 1.0])) == 4
