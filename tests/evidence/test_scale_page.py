"""docs/performance.md, on many clients, says what the records say."""

from __future__ import annotations

import pytest

from evidence.pages import scale_page
from evidence.pages.marked import written

recorded = pytest.mark.skipif(
    not (scale_page.RECORDS / "scale.json").is_file(), reason="a source distribution has no records"
)


def test_a_line_through_points_of_a_line_is_that_line() -> None:
    line = scale_page.Line.through([1, 10, 100], [3.0, 21.0, 201.0])
    assert (line.fixed, line.slope, line.worst) == pytest.approx((1.0, 2.0, 0.0))


@recorded
def test_the_page_says_what_the_records_say() -> None:
    text = scale_page.PAGE.read_text(encoding="utf-8")
    assert written(text, scale_page.blocks()) == text, "run python evidence/pages/scale_page.py"
