"""Undo: any rule takes back rounds that made training diverge, and is unchanged otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.messages import Reply
from adaquantfl.rules import Cosine, CostAware, DAdaQuant, FixedStep, FullPrecision, Rule, Undo
from adaquantfl.rules.registry import describe, from_description
from adaquantfl.rules.undo import MOST_ROUNDS_TAKEN_BACK
from adaquantfl.runs.config import load_config
from support.rounds import Federation, federation

EVERY: list[Rule] = [
    aq.AdaQuant(s0=2), aq.Fixed(bits=2), FullPrecision(), DAdaQuant(patience=2), Cosine(1.0, 4.0, 6), aq.Auto(),
    FixedStep(0.01),
]  # fmt: skip


def played(rule: Rule, ruined: int | None, rounds: int = 5) -> Federation:
    """A few rounds; in one of them every client sees an enormous loss."""

    def change(round: int, client: int, reply: Reply) -> Reply:
        return Reply(reply.round, math.nan, reply.examples, order=reply.order) if round == ruined else reply

    run = federation(300, change, rule=rule)
    for _ in range(rounds):
        run.play()
    return run


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.name)
def test_every_rule_can_take_a_diverged_round_back(rule: Rule) -> None:
    run = played(Undo(rule), ruined=2)
    assert [line.get("undone", False) for line in run.lines] == [False, False, True, False, False]
    np.testing.assert_array_equal(run.states[3].trajectory.model.weights, run.states[1].trajectory.model.weights)
    with pytest.raises(aq.EngineError, match="diverged"):
        played(rule, ruined=2)


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.name)
def test_without_such_a_round_the_model_is_that_of_the_rule_itself(rule: Rule) -> None:
    plain, wrapped = played(rule, None), played(Undo(rule), None)
    assert wrapped.server.model.weights.tobytes() == plain.server.model.weights.tobytes()
    assert [line["s"] for line in wrapped.lines] == [line["s"] for line in plain.lines]


def test_levels_double_and_the_factor_wears_off() -> None:
    rule = Undo(aq.Fixed(bits=2))
    state, levels = rule.init(), []
    for loss in (2.0, 2.0, 99.0, *[2.0] * 30):
        state = rule.plan(state, bits=0, dimension=10, loss=None, eta=0.1)
        levels.append(state.s)
        state, _ = rule.judge(state, loss)
    assert levels[:4] == [3, 3, 3, 6.0]
    assert 3 < levels[5] < levels[4] < 6
    assert levels[-1] == pytest.approx(3, rel=0.06)


def test_a_loss_that_stays_high_is_accepted_in_the_end() -> None:
    rule = Undo(aq.Fixed(bits=2))
    state, verdicts = rule.init(), []
    for loss in (1.0, *[50.0] * (MOST_ROUNDS_TAKEN_BACK + 1)):
        state, verdict = rule.judge(state, loss)
        verdicts.append(verdict)
    assert verdicts == [aq.Verdict.KEEP, *[aq.Verdict.ROLL_BACK] * MOST_ROUNDS_TAKEN_BACK, aq.Verdict.KEEP]


def test_a_state_survives_being_written_down() -> None:
    run = played(Undo(DAdaQuant(patience=2)), ruined=2, rounds=4)
    again = aq.Server.restore(run.server.state())
    assert again.current.rule == run.server.current.rule
    rule = Undo(aq.AdaQuant(s0=4), times=3.0)
    assert from_description(describe(rule)) == rule


@pytest.mark.parametrize(("make", "reason"), [
    (lambda: Undo(CostAware()), "by itself"),
    (lambda: Undo(aq.Fixed(bits=2), times=1.0), "above 1"),
    (lambda: Undo(aq.Fixed(bits=2), times="3"), "above 1"),
    (lambda: Undo("adaquant"), "expected a rule"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(make: object, reason: str) -> None:
    with pytest.raises(aq.RuleError, match=reason):
        make()  # type: ignore[operator]


def test_a_configuration_turns_it_on_for_every_method() -> None:
    assert load_config("demo", {"rule": "2bit"}).make_rule() == aq.Fixed(bits=2)
    assert load_config("demo", {"rule": "2bit", "undo": 5.0}).make_rule() == Undo(aq.Fixed(bits=2), 5.0)
    assert isinstance(load_config("demo", {"rule": "cost-aware", "undo": 5.0}).make_rule(), CostAware)
