"""The study of batch size and norm: every run can be set up, and a method that never got there has no price."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.studies import crossing
from evidence.studies.traces import Trace


def test_every_run_can_be_set_up(tmp_path: Path) -> None:
    found = {
        (one.config.batch_size, one.config.scope, one.config.method, one.config.rounding)
        for place in crossing.places()
        for method in crossing.COMPARED
        for one in [crossing.job(place, method, 0, tmp_path)]
    }
    assert len({(batch, scope) for batch, scope, _, _ in found}) == 6
    assert {(method, rounding) for _, _, method, rounding in found} == {
        ("adaquant", "power"),
        ("adaquant", "nearest"),
        ("2bit", "power"),
        ("4bit", "power"),
    }


def test_a_price_needs_every_seed() -> None:
    there = Trace("4bit", 0, 10, (1.0, 0.25), (100.0, 300.0), (1.0, 3.0))
    never = Trace("4bit", 1, 10, (1.0, 0.9), (100.0, 300.0), (1.0, 3.0))
    assert crossing.price([there], 0.5) == pytest.approx(20.0)
    assert crossing.price([there, never], 0.5) is None
    assert crossing.price([], 0.5) is None


def test_nothing_recorded_is_an_empty_table(tmp_path: Path) -> None:
    assert len(crossing.table(tmp_path).splitlines()) == 2
