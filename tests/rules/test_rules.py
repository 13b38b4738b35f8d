"""The other rules do what their authors say."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from adaquantfl.errors import RuleError
from adaquantfl.quantizers.choice import levels_for_resolution
from adaquantfl.rules import DAdaQuant, FedDQ, Plan, Rule, Seen
from adaquantfl.rules.registry import make, methods
from adaquantfl.rules.rivals import client_levels

UPDATE = np.array([0.3, -0.4, 0.0], dtype=np.float32)


def play(rule: Rule, losses: list[float]) -> list[float]:
    state, chosen = rule.init(), []
    for k, loss in enumerate(losses):
        state, plan = rule.plan(state, Seen(bits=16_000 * k, dimension=1000, loss=loss))  # an interval a round
        assert isinstance(plan.levels, int | float)
        chosen.append(plan.levels)
    return chosen


def test_dadaquant_doubles_only_after_patience_without_a_lower_loss() -> None:
    rule = DAdaQuant(s0=1, patience=3, smoothing=0.0)
    assert play(rule, [4.0, 3.0, 2.0, 1.0, 0.9, 0.8]) == [1] * 6
    assert play(rule, [1.0] * 9) == [1, 1, 1, 2, 2, 2, 2, 4, 4]


def test_dadaquant_passes_over_a_loss_that_is_not_a_number() -> None:
    assert play(DAdaQuant(s0=2, patience=1, smoothing=0.0), [1.0, math.nan, math.inf]) == [2, 2, 2]


def test_dadaquant_gives_clients_levels_of_equal_total_variance() -> None:
    weights = [0.5, 0.3, 0.15, 0.05]
    levels = client_levels(8, weights)
    p = np.array(weights)
    assert np.sum(p**2 / levels**2) == pytest.approx(np.sum(p**2 / 8**2))
    assert levels[0] / levels[3] == pytest.approx((0.5 / 0.05) ** (2 / 3))

    def planned(rule: DAdaQuant, p: dict[int, float]) -> Any:
        return rule.plan(rule.init(), Seen(bits=0, dimension=10, weights=p))[1].levels

    assert planned(DAdaQuant(s0=8, clients=False), dict(enumerate(weights))) == 8
    assert planned(DAdaQuant(s0=8), dict(enumerate(weights))) == dict(enumerate(map(round, levels)))
    assert planned(DAdaQuant(s0=1), {4: 0.999, 7: 0.001}) == {4: 1, 7: 1}  # never below 1


def test_feddq_takes_fewer_bits_as_updates_shrink_and_never_a_coarser_step_than_its_resolution() -> None:
    assert FedDQ(resolution=0.01).plan({}, Seen(bits=0, dimension=3)) == ({}, Plan(resolution=0.01))
    chosen = []
    for size in (4.0, 1.0, 0.25):
        update = UPDATE * np.float32(size)
        s = levels_for_resolution(update, 0.01)
        chosen.append(s)
        assert np.abs(update).max() / s <= 0.01
    assert chosen == sorted(chosen, reverse=True)
    assert len(set(chosen)) == 3
    assert levels_for_resolution(UPDATE * 0, 0.01) == 1


# All of them.


@pytest.mark.parametrize("method", methods())
def test_every_rules_state_survives_json(method: str) -> None:
    rule = make(method)
    state, _ = rule.plan(rule.init(), Seen(bits=0, dimension=10, loss=1.5, eta=0.1))
    assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("dadaquant", {"s0": -1.0}, "s0 = -1.0"),
        ("dadaquant", {"patience": 0}, "patience"),
        ("feddq", {"resolution": 0.0}, "resolution"),
        ("fixed", {"s": 0.0}, "s = 0.0"),
        ("adaquant", {"s0": 1.5}, "whole number"),
    ],
)
def test_bad_settings_are_named(name: str, settings: dict[str, object], says: str) -> None:
    with pytest.raises(RuleError, match=says):
        make(name, settings)
