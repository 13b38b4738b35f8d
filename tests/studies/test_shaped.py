"""The study of `shaped` in training: every run can be set up, and the page says what the records say."""

from __future__ import annotations

from pathlib import Path

import pytest
import shaped_page
from marked import written

from studies import shaped


@pytest.mark.parametrize("quantizer", shaped.QUANTIZERS)
def test_every_run_can_be_set_up(quantizer: str, tmp_path: Path) -> None:
    for task, rules in shaped.RULES.items():
        for rule in rules:
            config = shaped.job(task, rule, quantizer, 1, tmp_path).config
            assert (config.seed, config.quantizer) == (1, quantizer)
            assert config.method == ("cost-aware" if rule == "cost-aware" else "constant")


def test_the_page_shows_the_records() -> None:
    page = shaped_page.PAGE.read_text(encoding="utf-8")
    assert written(page, shaped_page.blocks()) == page, "run: python scripts/shaped_page.py"
