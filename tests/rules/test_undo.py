"""Undo: the server rolls back rounds that made training diverge, whatever the rule, and changes nothing otherwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.messages import Reply
from adaquantfl.rules import DAdaQuant, FedDQ, FullPrecision, Rule
from adaquantfl.rules.watch import MOST_ROLLED_BACK
from support.rounds import Federation, federation

EVERY: list[Rule] = [
    aq.AdaQuant(s0=2), aq.Fixed(bits=2), FullPrecision(), DAdaQuant(patience=2), aq.Auto(), FedDQ(0.01),
]  # fmt: skip


def played(losses: dict[int, float], rounds: int = 5, **settings: Any) -> Federation:
    """A few rounds; in some of them every client sees this loss, or has diverged where it is NaN."""

    def change(round: int, client: int, reply: Reply) -> Reply:
        said = losses.get(round, reply.loss)
        if math.isnan(said):
            return Reply(reply.round, math.nan, reply.examples, order=reply.order)
        return Reply(**{**vars(reply), "loss": said})

    run = federation(300, change, **settings)
    for _ in range(rounds):
        run.play()
    return run


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.name)
def test_every_rule_can_roll_a_diverged_round_back(rule: Rule) -> None:
    run = played({2: math.nan}, rule=rule, undo=5.0)
    assert [line.get("undone", False) for line in run.lines] == [False, False, True, False, False]
    np.testing.assert_array_equal(run.states[3].trajectory.model.weights, run.states[1].trajectory.model.weights)
    with pytest.raises(aq.EngineError, match="diverged"):
        played({2: math.nan}, rule=rule)


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.name)
def test_without_such_a_round_the_model_is_that_of_the_rule_itself(rule: Rule) -> None:
    plain, watched = played({}, rule=rule), played({}, rule=rule, undo=5.0)
    assert watched.server.model.weights.tobytes() == plain.server.model.weights.tobytes()
    assert [line["s"] for line in watched.lines] == [line["s"] for line in plain.lines]


def test_levels_double_and_the_factor_wears_off() -> None:
    losses = {round: 99.0 if round == 2 else 2.0 for round in range(34)}
    levels = [line["s"] for line in played(losses, rounds=34, rule=aq.Fixed(bits=2), undo=5.0).lines]
    assert levels[:4] == [3, 3, 3, 6.0]
    assert 3 < levels[5] < levels[4] < 6
    assert levels[-1] == pytest.approx(3, rel=0.06)


def test_a_loss_that_stays_high_is_accepted_in_the_end() -> None:
    losses = {0: 1.0, **dict.fromkeys(range(1, 10), 50.0)}
    run = played(losses, rounds=MOST_ROLLED_BACK + 2, rule=aq.Fixed(bits=2), undo=5.0)
    assert [line.get("undone", False) for line in run.lines] == [False, *[True] * MOST_ROLLED_BACK, False]


def test_a_state_survives_being_written_down() -> None:
    run = played({2: math.nan}, rounds=4, rule=DAdaQuant(patience=2), undo=3.0)
    again = aq.Server.restore(run.server.state())
    assert again.stages.undo == 3.0
    assert again.current.watch == run.server.current.watch != aq.Server(np.zeros(3, np.float32)).current.watch
