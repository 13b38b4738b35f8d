"""The table of gaps to the bound is the record's, and no quantizer is below the bound."""

import pytest

from evidence.pages import rate_bound_page

recorded = pytest.mark.skipif(not rate_bound_page.RECORD.is_file(), reason="a source distribution has no records")


@recorded
def test_the_page_shows_the_record() -> None:
    assert rate_bound_page.table() in rate_bound_page.PAGE.read_text(encoding="utf-8"), "run make results"


@recorded
def test_no_error_is_below_the_bound_and_mixed_is_never_far_from_the_best() -> None:
    rows = rate_bound_page.rows()
    assert all(one["error"] > one["bound"] and one["gap"] > 0 for one in rows)
    for bits in {one["wanted"] for one in rows if one["wanted"]}:
        gaps = {one["quantizer"]: one["gap"] for one in rows if one["wanted"] == bits}
        assert gaps["mixed"] < 1.03 * min(gaps.values())
