"""docs/rivals.md says what the registry and the record say."""

from __future__ import annotations

import pytest

from evidence.pages import mean_page
from evidence.pages.marked import written

recorded = pytest.mark.skipif(not mean_page.RECORD.is_file(), reason="a source distribution has no records")


@recorded
def test_the_page_says_what_the_record_says() -> None:
    text = mean_page.PAGE.read_text(encoding="utf-8")
    assert written(text, mean_page.blocks()) == text, "run python evidence/pages/mean_page.py"


def test_only_frames_that_had_the_bits_are_shown() -> None:
    assert mean_page.has_its_bits({"wanted": 0.5, "bits": 0.49})
    assert mean_page.has_its_bits({"wanted": None, "bits": 1.9})
    assert not mean_page.has_its_bits({"wanted": 0.5, "bits": 0.797})
    assert not mean_page.has_its_bits({"wanted": 2.0, "bits": 1.8})


def test_eden_below_one_bit_starts_from_its_one_bit() -> None:
    assert mean_page.below_one(1.0) == pytest.approx(mean_page.EDEN[1])
    assert mean_page.below_one(0.5) == pytest.approx(2.14)
