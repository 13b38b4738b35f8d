"""docs/nvflare.md says what the record says."""

from __future__ import annotations

import pytest

from evidence.pages import nvflare_page
from evidence.pages.marked import written

needs_record = pytest.mark.skipif(not nvflare_page.RECORD.is_file(), reason="a source distribution has no records")


@needs_record
def test_the_page_is_what_the_record_says() -> None:
    page = nvflare_page.PAGE.read_text(encoding="utf-8")
    assert written(page, nvflare_page.blocks()) == page


RUNS = {
    "none, seed 0": {"bytes": 2000.0, "error": 0.0, "loss": [0.9, 0.7, 0.6]},
    "float16, seed 0": {"bytes": 1000.0, "error": 0.1, "loss": [0.9, 0.7, 0.6]},
    "ours centroid 8, seed 0": {"bytes": 20.0, "error": 7.4, "loss": [0.9, 0.7, 0.8]},
    "ours, seed 0": {"bytes": 60.0, "bytes by round": [100, 40, 40], "error": 0.4, "loss": [0.9, 0.7, 0.6]},
    "ours, seed 1": {"bytes": 40.0, "bytes by round": [80, 20, 20], "error": 0.4, "loss": [0.9, 0.7, 0.5]},
    "none, seed 1": {"bytes": 2000.0, "error": 0.0, "loss": [0.9, 0.7, 0.6]},
}
SECONDS = {"none": 1e-6, "float16": 0.002, "ours": 0.003, "ours centroid 8": 0.004}
RECORD = {"rounds": 3, "methods": [*SECONDS, "not played"], "runs": RUNS, "seconds": SECONDS}


def test_a_row_has_the_ratio_to_the_message_without_a_filter() -> None:
    _, plain, _, ours, coarse = nvflare_page.rows(RECORD)
    assert plain == ["no filter", "2,000", "1.0", "0", "0", "0.900", "0.600"]
    assert ours == ["ours, default", "60", "33.3", "0.40", "3", "0.900", "0.600"]
    assert coarse == ['ours, `error=8, quantizer="centroid"`', "20", "100.0", "7.4", "4", "0.900", "0.800"]


def test_the_summary_has_the_table_s_sizes_and_the_mean_loss_over_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvflare_page, "LAST", 2)
    text = nvflare_page.summary(RECORD)
    assert "is 33 times smaller than with no filter, on average over 3 rounds. In the last" in text
    assert "it is 50 times smaller. The smallest" in text
    assert "float16, is 2 times smaller" in text
    assert "The mean loss of the last 2 rounds over 2 seeds is 0.625 with the default and 0.650 without" in text
    assert "a message is 100 times smaller, and that loss is 0.750" in text
