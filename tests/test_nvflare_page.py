"""docs/nvflare.md says what the record says."""

from __future__ import annotations

import nvflare_page
import pytest
from marked import written

needs_record = pytest.mark.skipif(not nvflare_page.RECORD.is_file(), reason="a source distribution has no records")


@needs_record
def test_the_page_is_what_the_record_says() -> None:
    page = nvflare_page.PAGE.read_text(encoding="utf-8")
    assert written(page, nvflare_page.blocks()) == page


RUNS = {
    "none, seed 0": {"bytes": 2000.0, "error": 0.0, "loss": [0.9, 0.7, 0.6]},
    "float16, seed 0": {"bytes": 1000.0, "error": 0.1, "loss": [0.9, 0.7, 0.6]},
    "ours 8, seed 0": {"bytes": 20.0, "error": 7.4, "loss": [0.9, 0.7, 0.6]},
    "ours 8, seed 1": {"bytes": 20.0, "error": 7.2, "loss": [0.9, 0.7, 0.5]},
    "none, seed 1": {"bytes": 2000.0, "error": 0.0, "loss": [0.9, 0.7, 0.6]},
}
RECORD = {"rounds": 3, "runs": RUNS, "seconds": {"none": 1e-6, "float16": 0.002, "ours 8": 0.004}}


def test_a_row_has_the_ratio_to_the_message_without_a_filter() -> None:
    _, plain, _, ours = nvflare_page.rows(RECORD)
    assert plain == ["no filter", "2,000", "1.0", "0", "0", "0.900", "0.600"]
    assert ours == ["ours, `error=8`", "20", "100.0", "7.4", "4", "0.900", "0.600"]


def test_the_summary_has_the_mean_over_the_seeds() -> None:
    text = nvflare_page.summary(RECORD)
    assert "is 100 times smaller" in text
    assert "float16, is 2 times smaller" in text
    assert "over 2 seeds is 0.717 with it and 0.733 without" in text
