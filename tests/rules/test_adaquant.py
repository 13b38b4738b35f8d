"""The rule, its intervals, and what it does with a loss that makes no sense."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.rules import State

D = 1000


def nearest(s0: int = 2, **settings: Any) -> aq.AdaQuant:
    return aq.AdaQuant(s0=s0, rounding="nearest", **settings)


def plan(rule: aq.AdaQuant, state: State, bits: float, loss: float | None, eta: float = 0.1) -> State:
    """The state after a plan, whose s is the plan's."""
    state, plan = rule.plan(state, aq.Seen(bits=bits, dimension=D, loss=loss, eta=eta))
    assert (plan.levels, plan.loss_due) == (state["s"], state["boundary"])
    return state


def started(rule: aq.AdaQuant, f0: float = 2.0) -> State:
    return plan(rule, rule.init(), 0, f0)


@given(st.floats(1e-6, 2.0), st.integers(1, 50), st.floats(0.001, 0.1))
def test_s_is_the_nearest_integer_to_the_rule(fk: float, s0: int, eta: float) -> None:
    rule = nearest(s0=s0)
    exact = s0 * (eta / 0.1) * math.sqrt(2.0 / fk)
    s = plan(rule, started(rule), 16 * D, fk, eta)["s"]
    assert s is not None
    assert 1 <= s <= 65535
    assert abs(s - min(65535, max(1, exact))) <= 0.5 + 1e-9 * exact


@given(st.floats(1e-6, 2.0))
def test_a_power_uses_every_level_that_the_rules_bits_can_tell_apart(fk: float) -> None:
    rule = aq.AdaQuant(s0=2)
    assert rule.init()["s"] == started(rule)["s"] == 3
    s = plan(rule, started(rule), 16 * D, fk)["s"]
    b = math.ceil(math.log2(2 * math.sqrt(2.0 / fk) + 1))  # the paper's b_k
    assert s == 2**b - 1
    assert aq.paper_bits(D, s) == D * b + D + 32


def test_s_changes_only_in_the_first_round_at_or_after_a_boundary() -> None:
    rule = nearest(s0=2, interval=16)
    state = started(rule)
    assert plan(rule, state, 16 * D - 1, 0.02)["s"] == 2
    state = plan(rule, state, 17.5 * D, 0.5)  # a round does not end exactly on the boundary
    assert state["s"] == 4
    assert plan(rule, state, 31.9 * D, 0.02)["s"] == 4  # the next boundary is 32 d, not 33.5 d
    assert plan(rule, state, 32 * D, 0.02)["s"] == 20


def test_a_loss_above_the_start_counts_as_the_start_unless_the_guard_is_off() -> None:
    assert plan(nearest(s0=8), started(nearest(s0=8)), 16 * D, 200.0)["s"] == 8
    literal = nearest(s0=8, guard=False)
    assert plan(literal, started(literal), 16 * D, 8.0)["s"] == 4
    assert plan(literal, started(literal), 16 * D, 1e9)["s"] == 1  # never below 1


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_keeps_s(loss: float) -> None:
    rule = nearest(s0=2, guard=False)
    state = plan(rule, started(rule), 16 * D, 0.5)
    later = plan(rule, state, 32 * D, loss)
    assert later["s"] == state["s"] == 4
    assert later["boundary"] > state["boundary"]


def test_a_loss_of_zero_asks_for_the_most_levels_there_are() -> None:
    rule = nearest()
    for loss in (0.0, 1e-320):
        assert plan(rule, started(rule), 16 * D, loss)["s"] == 65535


@pytest.mark.parametrize("f0", [math.nan, 0.0, -1.0])
def test_losses_that_make_no_sense_are_refused(f0: float) -> None:
    with pytest.raises(aq.RuleError, match="start"):
        started(nearest(), f0)
    with pytest.raises(aq.RuleError, match="negative"):
        plan(nearest(), started(nearest()), 16 * D, -0.1)


@pytest.mark.parametrize(("bits", "dimension", "eta"), [(0, D, 0.0), (0, D, math.nan), (math.nan, D, 0.1), (0, 0, 0.1)])
def test_a_plan_without_sense_is_refused(bits: float, dimension: int, eta: float) -> None:
    rule = nearest()
    with pytest.raises(aq.RuleError, match="learning rate"):
        rule.plan(rule.init(), aq.Seen(bits=bits, dimension=dimension, loss=1.0, eta=eta))


def test_without_a_loss_the_first_one_seen_becomes_the_start() -> None:
    # loss = "round": the mean loss of round 0 is known only after it.
    rule = nearest(s0=2)
    state = plan(rule, rule.init(), 0, None)
    assert (state["s"], state["f0"]) == (2, None)
    state = plan(rule, state, 3 * D, 2.0)
    assert (state["s"], state["f0"]) == (2, 2.0)
    assert plan(rule, state, 16 * D, 0.5)["s"] == 4


def test_a_plan_changes_nothing_it_was_given() -> None:
    rule = nearest()
    state = started(rule)
    copy = dict(state)
    plan(rule, state, 16 * D, 0.01)
    assert state == copy


def losses_played(rule: aq.AdaQuant, losses: list[float]) -> list[int]:
    """The levels of each interval, whose losses these are."""
    state, levels = rule.init(), []
    for number, loss in enumerate(losses):
        state = plan(rule, state, 16 * D * number, loss)
        levels.append(state["s"])
    return levels


def test_a_loss_that_does_not_fall_takes_one_more_bit_and_keeps_it() -> None:
    stuck = [2.0, *[0.5 + 0.01 * (-1) ** k for k in range(11)]]
    assert losses_played(aq.AdaQuant(), stuck) == [3, *[7] * 11]
    played = losses_played(aq.AdaQuant(stall=2), stuck)
    assert played == [3, *[7] * 3, *[15] * 4, *[31] * 4]  # every two intervals that are no better than the two before
    assert losses_played(aq.AdaQuant(stall=2), [*stuck[:6], 0.45, 0.4, 0.35, 0.3])[-1] == 15, "it is kept"
    falling = [2.0 * 0.97**k for k in range(40)]
    assert losses_played(aq.AdaQuant(stall=4), falling) == losses_played(aq.AdaQuant(), falling)
