"""The other rules do what their authors say."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers.choice import levels_for_resolution
from adaquantfl.rules import DAdaQuant, FedDQ, Plan, Seen
from adaquantfl.rules.registry import make, methods
from adaquantfl.rules.rivals import client_levels


def play(rule: aq.Rule, losses: list[float]) -> list[Any]:
    state, chosen = rule.init(), []
    for k, loss in enumerate(losses):
        state, plan = rule.plan(state, Seen(bits=16_000 * k, dimension=1000, loss=loss))  # an interval a round
        chosen.append(plan.levels)
    return chosen


def test_dadaquant_doubles_only_after_patience_without_a_lower_loss() -> None:
    rule = DAdaQuant(s0=1, patience=3, smoothing=0.0)
    assert play(rule, [4.0, 3.0, 2.0, 1.0, 0.9, 0.8]) == [1] * 6
    assert play(rule, [1.0] * 9) == [1, 1, 1, 2, 2, 2, 2, 4, 4]
    assert play(DAdaQuant(s0=2, patience=1, smoothing=0.0), [1.0, math.nan, math.inf]) == [2, 2, 2]


def test_dadaquant_gives_clients_levels_of_equal_total_variance() -> None:
    weights = [0.5, 0.3, 0.15, 0.05]
    levels, p = client_levels(8, weights), np.array(weights)
    assert np.sum(p**2 / levels**2) == pytest.approx(np.sum(p**2 / 8**2))
    assert levels[0] / levels[3] == pytest.approx((0.5 / 0.05) ** (2 / 3))

    def planned(rule: DAdaQuant, p: dict[int, float]) -> Any:
        return rule.plan(rule.init(), Seen(bits=0, dimension=10, weights=p))[1].levels

    assert planned(DAdaQuant(s0=8, clients=False), dict(enumerate(weights))) == 8
    assert planned(DAdaQuant(s0=8), dict(enumerate(weights))) == dict(enumerate(map(round, levels)))
    assert planned(DAdaQuant(s0=1), {4: 0.999, 7: 0.001}) == {4: 1, 7: 1}  # never below 1


def test_feddq_takes_fewer_bits_as_updates_shrink_and_never_a_coarser_step_than_its_resolution() -> None:
    assert FedDQ(resolution=0.01).plan({}, Seen(bits=0, dimension=3)) == ({}, Plan(resolution=0.01))
    update, chosen = np.array([0.3, -0.4, 0.0], dtype=np.float32), []
    for size in (4.0, 1.0, 0.25):
        chosen.append(levels_for_resolution(update * np.float32(size), 0.01))
        assert 0.4 * size / chosen[-1] <= 0.01 * (1 + 1e-6)
    assert chosen == sorted(set(chosen), reverse=True)
    assert levels_for_resolution(update * 0, 0.01) == 1


def test_fixed_levels_never_change_and_need_no_loss() -> None:
    for rule, levels in ((aq.Fixed(bits=1), 1), (aq.Fixed(bits=16), 65535), (aq.Fixed(s=0.25), 0.25)):
        assert rule.plan({}, Seen(bits=1e9, dimension=10, loss=0.1)) == ({}, Plan(levels=levels))
        assert not rule.needs
    assert aq.FullPrecision().plan({}, Seen(bits=0, dimension=10)) == ({}, Plan())


def test_every_rules_state_survives_json() -> None:
    for method in methods():
        rule = make(method)
        state, _ = rule.plan(rule.init(), Seen(bits=0, dimension=10, loss=1.5, eta=0.1))
        assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        (DAdaQuant, {"s0": -1.0}, "s0 = -1.0"),
        (DAdaQuant, {"patience": 0}, "patience"),
        (FedDQ, {"resolution": 0.0}, "resolution"),
        (aq.Fixed, {"s": 0}, "s = 0"),
        (aq.Fixed, {"bits": 17}, "whole number of bits"),
        (aq.Fixed, {"bits": 2.0}, "whole number of bits"),
        (aq.AdaQuant, {"s0": 1.5}, "whole number"),
        (aq.AdaQuant, {"s0": 70000}, "whole number"),
        (aq.AdaQuant, {"interval": math.nan}, "positive number"),
        (aq.AdaQuant, {"rounding": "floor"}, "rounding"),
        (aq.Auto, {"delay": 0.0}, "delay"),
        (aq.Auto, {"noise": True}, "noise"),
        (aq.Auto, {"alone": math.nan}, "alone"),
    ],
)
def test_settings_that_make_no_sense_are_named(kind: Any, settings: dict[str, object], says: str) -> None:
    with pytest.raises(aq.RuleError, match=says):
        kind(**settings)
