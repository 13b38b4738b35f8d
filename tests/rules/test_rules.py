"""The other rules do what their authors say; ours finds the most progress per byte and survives a rising loss."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from adaquantfl.errors import RuleError
from adaquantfl.quantizers.choice import levels_for_resolution
from adaquantfl.rules import CostAware, DAdaQuant, FedDQ, Plan, Report, Rule, Seen, State, Survey, Verdict
from adaquantfl.rules.cost_aware import Curve, Trend, _candidates
from adaquantfl.rules.registry import make, methods
from adaquantfl.rules.rivals import client_levels
from adaquantfl.theory import MAX_LEVELS

UPDATE = np.array([0.3, -0.4, 0.0], dtype=np.float32)
KEEP, REJECT, ROLL_BACK = Verdict


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


# Cost-aware.


def planned(rule: CostAware, state: State, survey: Survey | None = None, eta: float = 0.1) -> tuple[State, Plan]:
    return rule.plan(state, Seen(bits=0, dimension=1000, eta=eta, survey=survey))


def survey_of(s: float, sharpness: float = 0.0, loss: float = 1.0) -> Survey:
    """An entropy-coded wire at few levels: cost and error go with s and 1 / s. Noise adds sharpness / s to the loss."""
    levels = _candidates(s)
    errors, costs = tuple(500 / x for x in levels), tuple(1400 * x for x in levels)
    return Survey(levels, errors, costs, loss=loss, harm=loss * sharpness / s)


def surveyed(
    rule: CostAware, losses: list[float], survey: Callable[[float], Survey], eta: list[float] | None = None
) -> list[float]:
    """The levels of each round, with these round losses."""
    state, chosen, last = rule.init(), [], None
    for k, loss in enumerate(losses):
        state, plan = planned(rule, state, last, eta[k] if eta else 0.1)
        chosen.append(state["s"])
        last = survey(state["s"]) if plan.survey else None
        state, verdict = rule.judge(state, Report(loss, last))
        assert verdict is KEEP
    return chosen


def power_law(rounds: int, power: float) -> list[float]:
    return [2.0 * (k + 2) ** -power for k in range(rounds)]


@pytest.mark.parametrize("power", [0.2, 0.45])
@pytest.mark.parametrize("sharpness", [0.004, 0.05])
def test_the_excess_that_noise_keeps_up_is_the_trend_times_the_cost_s_slope(power: float, sharpness: float) -> None:
    """C ~ s and q ~ 1 / s: the derivative of ln C + T H / (p f) is zero where T H / f = p."""
    rule = CostAware(every=1, repair=10)
    chosen = surveyed(rule, power_law(40, power), lambda s: survey_of(s, sharpness))
    assert 10 * sharpness / chosen[-1] == pytest.approx(power, rel=0.03)


def test_under_the_papers_cost_and_variance_levels_follow_eq_13_up_to_the_logarithm() -> None:
    """C = d log2(4 s), q = d / s^2, a constant harm per error: s^2 / ln(4 s) grows as f(w_0) / f(w_k)."""
    rule, chosen = CostAware(every=1, s0=2.0), []
    for loss in (1.0, 0.25):

        def paper(s: float, loss: float = loss) -> Survey:
            levels, d = _candidates(s), 10_000
            costs = tuple(d * math.log2(4 * x) / 8 for x in levels)
            return Survey(levels, tuple(d / x**2 for x in levels), costs, loss=loss, harm=0.08 / s**2)

        chosen.append(surveyed(rule, power_law(30, 0.5), paper)[-1])
    ratio = chosen[1] ** 2 / math.log(4 * chosen[1]) / (chosen[0] ** 2 / math.log(4 * chosen[0]))
    assert ratio == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("s0", [0.05, 0.5, 5.0, 50.0])
def test_where_the_first_round_looks_is_soon_forgotten(s0: float) -> None:
    rule = CostAware(s0=s0)
    chosen = surveyed(rule, power_law(30, 0.5), lambda s: survey_of(s, 0.004))
    assert chosen[9:] == pytest.approx([rule.repair * 0.004 / 0.5] * 21, rel=0.05)


def test_bursts_of_harm_do_not_raise_the_levels() -> None:
    rule = CostAware(every=1)

    def levels(every: int) -> list[float]:
        rounds = count()
        return surveyed(rule, power_law(60, 0.4), lambda s: survey_of(s, 0.05 if next(rounds) % every == 3 else 0.004))

    calm, bursts = levels(1000), levels(4)
    assert bursts[20:] == pytest.approx(calm[20:], rel=0.01)


def test_the_trend_of_noisy_losses_stays_near_the_middle_until_many_rounds_have_told_it(
    rng: np.random.Generator,
) -> None:
    """Losses that scatter by half, as with few clients per round: five of them say nothing about the slope."""
    few, many = [], []
    for _ in range(200):
        trend = Trend()
        for k, noise in enumerate(rng.normal(0, 0.5, size=2000)):
            trend = trend.then(2 * (k + 2) ** -0.45 * math.exp(noise))
            if k == 4:
                few.append(trend.power)
        many.append(trend.power)
    assert np.mean(few) == pytest.approx(0.3, abs=0.05)
    assert np.std(few) < 0.1
    assert np.mean(many) == pytest.approx(0.44, abs=0.03)


def test_noise_never_adds_more_to_the_loss_than_it_may() -> None:
    rule = CostAware(every=1, repair=0.1, harm=0.05)
    surveys = iter([0.0001, *[1 / 12] * 99])  # harmless at the start, and then no longer
    chosen = surveyed(rule, power_law(30, 0.5), lambda s: survey_of(s, next(surveys)))
    assert chosen[-1] == pytest.approx(1 / 12 / 0.05, rel=0.05)


def test_what_noise_gains_by_luck_is_no_reason_for_more_noise() -> None:
    rule = CostAware(every=1)
    lucky, not_lucky = (
        surveyed(rule, power_law(12, 0.5), lambda s, h=harm: survey_of(s, h))  # type: ignore[misc]
        for harm in (-0.01, 0.01)
    )
    assert lucky == not_lucky


def test_a_loss_that_noise_leaves_without_a_number_asks_for_finer_levels() -> None:
    rule = CostAware(s0=0.5, every=1)
    state, _ = planned(rule, rule.init())
    lost = replace(survey_of(0.5), loss=math.nan, harm=math.inf)
    assert planned(rule, state, lost)[0]["s"] == pytest.approx(0.5 / 0.35, rel=0.02)


def test_levels_are_never_finer_than_the_mini_batches_are() -> None:
    rule = CostAware(every=1, s0=2000.0)
    chosen = surveyed(rule, power_law(30, 0.05), lambda s: survey_of(s, 100))
    assert 500 / max(chosen[3:]) == pytest.approx(0.05, rel=0.05)


def test_losses_that_are_noisy_do_not_ratchet_s_up() -> None:
    """Few clients per round: their losses vary by a factor of two, and s stays where the mean puts it."""
    rule = CostAware()
    draw = np.random.default_rng(0)
    losses = [float(loss * draw.uniform(0.6, 1.5)) for loss in power_law(200, 0.3)]
    chosen = surveyed(rule, losses, lambda s: survey_of(s, 0.01))
    assert max(chosen[20:]) < 2.5 * min(chosen[20:])


def test_where_nobody_measures_harm_the_rule_is_eq_13() -> None:
    rule = CostAware(every=1)
    chosen = surveyed(rule, [2.0] * 5 + [0.5] * 40, lambda s: survey_of(s), eta=[0.1] * 35 + [0.05] * 10)
    assert chosen[2] == pytest.approx(2.0)
    assert chosen[34] == pytest.approx(4.0, rel=0.01)
    assert chosen[-1] == pytest.approx(2.0, rel=0.01)


def judged(rule: CostAware, losses: list[float]) -> tuple[list[Verdict], float]:
    """The verdict after each of these losses, and s in the end."""
    state, verdicts = rule.init(), []
    for loss in losses:
        state, verdict = rule.judge(state, Report(loss))
        verdicts.append(verdict)
    return verdicts, state["s"]


def test_a_round_that_ruins_the_training_is_taken_back_and_s_doubles() -> None:
    assert judged(CostAware(s0=0.5), [2.0, 1.5, 2.9, 1.4, 0.5, 3.1]) == ([KEEP] * 6, 0.5)
    assert judged(CostAware(s0=0.5), [2.0, 1.0, 20.0, 1.0]) == ([KEEP, KEEP, ROLL_BACK, KEEP], 1.0)
    for lost in (float("inf"), float("nan")):
        assert judged(CostAware(s0=0.5), [2.0, lost, lost, 1.0]) == ([KEEP, ROLL_BACK, ROLL_BACK, KEEP], 2.0)


def test_the_first_rounds_have_nothing_to_be_compared_with() -> None:
    assert judged(CostAware(s0=0.5), [float("inf"), 2.0]) == ([KEEP, KEEP], 0.5)


def test_a_training_that_diverges_without_noise_is_given_up() -> None:
    assert judged(CostAware(s0=0.5), [2.0, *[50.0] * 7])[0] == [KEEP, *[ROLL_BACK] * 6, KEEP]


def test_the_caution_after_a_round_that_was_taken_back_wears_off() -> None:
    rule, state, last, chosen = CostAware(every=1), CostAware().init(), None, []
    for k, loss in enumerate(power_law(60, 0.5)):
        state, _ = planned(rule, state, last)
        chosen.append(state["s"])
        last = survey_of(state["s"], 0.01)
        state, _ = rule.judge(state, Report(90.0 if k == 20 else loss, last))
    assert chosen[21] > 1.5 * chosen[20]
    assert chosen[-1] == pytest.approx(chosen[20], rel=0.1)


def searched(rule: CostAware, harms: list[float]) -> tuple[list[Verdict], list[float]]:
    """The verdict, and s, in rounds at whose start noise does this harm to a loss of 2."""
    state, verdicts, chosen, survey = rule.init(), [], [], None
    for harm in harms:
        state, plan = planned(rule, state, survey, 0.1)
        assert plan.survey
        survey = replace(survey_of(state["s"]), loss=2.0, harm=harm)
        state, verdict = rule.judge(state, Report(2.0, survey))
        verdicts.append(verdict)
        chosen.append(state["s"])
    return verdicts, chosen


def test_a_start_whose_noise_does_harm_is_taken_back_until_the_levels_are_fine_enough() -> None:
    rule = CostAware(s0=0.1, every=1, harm=0.03)
    verdicts, chosen = searched(rule, [2.0, math.nan, 0.2, 0.05, 0.05])
    assert verdicts == [REJECT, REJECT, REJECT, KEEP, KEEP]  # 0.05 is 2.5 % of the loss
    assert chosen[:2] == pytest.approx([0.1, 0.4])


def test_the_next_try_is_clearly_finer_where_the_harm_is_only_just_too_much() -> None:
    _, chosen = searched(CostAware(s0=1.0, every=1, harm=0.03), [0.0601, 0.001])
    assert chosen[1] > 1.2 * chosen[0]


def test_harm_takes_nothing_back_once_training_has_started() -> None:
    verdicts, chosen = searched(CostAware(s0=0.1, every=1), [0.01, 2.0, 2.0])
    assert verdicts == [KEEP] * 3
    assert chosen[2] > 2 * chosen[1]


def test_the_finest_levels_are_not_taken_back_and_never_exceeded() -> None:
    verdicts, chosen = searched(CostAware(s0=40_000.0, every=1), [2.0] * 4)
    assert (verdicts[0], verdicts[-1]) == (REJECT, KEEP)
    assert chosen[1] == MAX_LEVELS


def test_a_start_is_kept_where_more_levels_would_not_help() -> None:
    rule = CostAware(s0=1.0, every=1)
    state, _ = planned(rule, rule.init())
    flat = replace(survey_of(state["s"]), errors=(3.0,) * 3, loss=2.0, harm=2.0)
    assert rule.judge(state, Report(2.0, flat))[1] is KEEP


def test_a_survey_is_there_in_the_first_rounds_and_then_every_few() -> None:
    rule = CostAware(every=3)
    state, asked = rule.init(), []
    for _ in range(16):
        state, plan = planned(rule, state)
        asked.append(bool(plan.survey))
    assert asked == [True] * 10 + [False, True, False, False, True, False]


# All of them.


@pytest.mark.parametrize("method", methods())
def test_every_rules_state_survives_json(method: str) -> None:
    rule = make(method)
    state, _ = rule.plan(rule.init(), Seen(bits=0, dimension=10, loss=1.5, eta=0.1))
    assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("cost-aware", {"s0": -1.0}, "s0 = -1.0"),
        ("dadaquant", {"patience": 0}, "patience"),
        ("feddq", {"resolution": 0.0}, "resolution"),
        ("fixed", {"s": 0.0}, "s = 0.0"),
        ("cost-aware", {"repair": 0.0}, "repair"),
        ("adaquant", {"s0": 1.5}, "whole number"),
    ],
)
def test_bad_settings_are_named(name: str, settings: dict[str, object], says: str) -> None:
    with pytest.raises(RuleError, match=says):
        make(name, settings)


def test_candidates_that_nearly_coincide_do_not_bend_the_curve() -> None:
    """At the least levels two of three are close: a parabola through their noise would find a minimum in between."""
    levels = (1 / 64, 1.012 / 64, 4.05 / 64)
    seen = Survey(levels, errors=(60.0, 63.0, 16.0), costs=(100.0, 101.0, 200.0), loss=1.0, harm=0.01)
    errors = Curve.of(seen).errors
    assert np.all(np.diff(errors) < 0)


def alike(s: float, **changes: Any) -> Survey:
    """Clients that see the same loss in training as before it, and bear little noise."""
    levels = _candidates(s)
    made = Survey(levels, tuple(40 / x for x in levels), tuple(100 * x for x in levels), loss=1.0, harm=0.08 / s)
    return replace(made, **changes)


def late(rule: CostAware, rounds: int, **changes: Any) -> list[float]:
    """How much is sent later, round by round."""
    state, last, shares = rule.init(), None, []
    for _ in range(rounds):
        state, plan = planned(rule, state, last, 0.1)
        shares.append(state["later"])
        last = alike(state["s"], **changes) if plan.survey else None
        state, _ = rule.judge(state, Report(1.0, last))
    return shares


def test_updates_are_late_after_ten_rounds_where_training_bears_little_noise() -> None:
    shares = late(CostAware(), 20)
    assert shares[:9] == [0.0] * 9
    assert shares[10:] == pytest.approx([5 / 6] * 10), "five rounds late"
    assert late(CostAware(delay=0.1), 40)[19:21] == pytest.approx([2 / 3, 2.1 / 3.1]), "a tenth of the rounds"


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"delay": 0.0}, {}),
        ({}, {"loss": 2.0}),  # clients fit their own data within a round
        ({}, {"participation": 0.05}),
        ({}, {"participation": 0.0}),  # a server that does not average
        ({}, {"harm": 1e-6}),  # noise does nothing, so that much of it is right
    ],
)
def test_updates_are_never_late_where_that_costs_more_than_noise(
    settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert not any(late(CostAware(**settings), 60, **changes))


def test_a_late_round_that_ruins_the_training_is_undone_and_noise_returns() -> None:
    rule, state, last = CostAware(), CostAware().init(), None
    for _ in range(15):
        state, plan = planned(rule, state, last, 0.1)
        last = alike(state["s"]) if plan.survey else None
        state, _ = rule.judge(state, Report(1.0, last))
    assert state["later"]
    state, verdict = rule.judge(state, Report(100.0))
    assert verdict is Verdict.ROLL_BACK
    assert not state["later"]
    assert planned(rule, state)[1].survey
    for _ in range(30):
        state, plan = planned(rule, state, alike(state["s"]), 0.1)
        state, _ = rule.judge(state, Report(1.0, alike(state["s"])))
        assert not state["later"], "never again"
