"""The study of batch size and norm: every run can be set up, and a method that never reached it has no price."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.studies import crossing
from evidence.studies.traces import Trace


def test_every_run_can_be_set_up(tmp_path: Path) -> None:
    for place in crossing.places():
        for method in crossing.COMPARED:
            config = crossing.job(place, method, 0, tmp_path).config
            assert (config.batch_size, config.scope) == (place.batch, place.scope)
            assert (config.rule.get("rounding") == "nearest") == (method == "adaquant-nearest")


def test_a_price_needs_every_seed() -> None:
    there = Trace("4bit", 0, 10, (1.0, 0.25), (100.0, 300.0), (1.0, 3.0))
    never = Trace("4bit", 1, 10, (1.0, 0.9), (100.0, 300.0), (1.0, 3.0))
    assert crossing.price([there], 0.5) == pytest.approx(20.0)
    assert crossing.price([there, never], 0.5) is None
    assert crossing.price([], 0.5) is None


def test_nothing_recorded_is_an_empty_table(tmp_path: Path) -> None:
    assert len(crossing.table(tmp_path).splitlines()) == 2
