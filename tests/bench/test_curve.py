"""What the bench counts: bytes down, and what was spent when a smoothed curve met its target."""

from __future__ import annotations

import pytest

from adaquantfl.bench.curve import Curve
from adaquantfl.bench.loop import Downlink


def curve(values: list[float], accuracy: bool = True) -> Curve:
    rounds = [2 * (place + 1) for place in range(len(values))]
    up = [10 * one for one in rounds]
    return Curve(accuracy=accuracy, round=rounds, value=values, up=up, down=[3 * one for one in up])


def test_one_lucky_evaluation_reaches_nothing() -> None:
    assert curve([0.1] * 10 + [0.9] + [0.1] * 10).spent(0.5, "up") is None
    assert curve([0.1] * 4).spent(0.05, "up") is None  # too few evaluations for a mean


def test_a_crossing_lies_between_two_evaluations() -> None:
    rising = curve([0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert rising.smoothed[:3] == pytest.approx([0.0, 0.1, 0.2])
    assert [rising.spent(0.15, which) for which in ("round", "up", "both")] == pytest.approx([13.0, 130.0, 520.0])
    falling = curve([2.0] * 5 + [1.0] * 5, accuracy=False)
    assert falling.spent(1.5, "round") == pytest.approx(15.0)
    assert (falling.target(20), rising.target(20)) == pytest.approx((1.005, 0.495))
    assert rising.final(22) is None  # it has not got that far


def test_a_client_gets_the_steps_it_missed_or_the_model() -> None:
    down = Downlink(whole=100)
    down.serve([0, 1])
    assert down.sent == 200
    down.after_round(30)
    down.serve([0])
    assert down.sent == 230
    for _ in range(3):
        down.after_round(30)
    down.serve([1])  # four steps of 30 are more than the model
    assert down.sent == 330
