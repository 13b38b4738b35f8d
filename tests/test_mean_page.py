"""docs/rivals.md says what the registry and the record say."""

from __future__ import annotations

import mean_page
import pytest

recorded = pytest.mark.skipif(not mean_page.RECORD.is_file(), reason="a source distribution has no records")


@recorded
def test_the_page_says_what_the_record_says() -> None:
    text = mean_page.PAGE.read_text(encoding="utf-8")
    for name, block in mean_page.blocks().items():
        assert block in text, f"{name}: run python scripts/mean_page.py"


@recorded
def test_every_search_found_the_bits_that_were_wanted() -> None:
    for row in mean_page.rows():
        if row["wanted"] is not None:
            assert 0.965 * row["wanted"] < row["bits"] < 1.01 * row["wanted"]


def test_eden_below_one_bit_starts_from_its_one_bit() -> None:
    assert mean_page.below_one(1.0) == pytest.approx(mean_page.EDEN[1])
    assert mean_page.below_one(0.5) == pytest.approx(2.14)
