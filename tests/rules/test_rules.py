"""The other rules do what their authors say; ours finds the optimum of the true bound and survives a rising loss."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from adaquantfl.errors import ConfigError, RuleError
from adaquantfl.rules import (
    AdaQuant,
    Cosine,
    CostAware,
    DAdaQuant,
    FedDQ,
    FixedStep,
    Rule,
    RuleState,
    Survey,
    Verdict,
)
from adaquantfl.rules.dadaquant import client_levels
from adaquantfl.rules.registry import methods
from adaquantfl.runs.config import Config
from adaquantfl.theory import MAX_LEVELS, adaptive_levels

UPDATE = np.array([0.3, -0.4, 0.0], dtype=np.float32)
KEEP, REJECT, ROLL_BACK = Verdict


def play(rule: Rule, losses: list[float], state: RuleState | None = None) -> list[float]:
    state, chosen = state or rule.init(), []
    for k, loss in enumerate(losses):
        state = rule.plan(state, bits=16_000 * k, dimension=1000, loss=loss, eta=0.1)  # an interval a round
        assert state.s is not None
        chosen.append(state.s)
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
    assert DAdaQuant(clients=False).levels_by_weight(8, dict(enumerate(weights))) is None
    assert DAdaQuant().levels_by_weight(8, dict(enumerate(weights))) == dict(enumerate(map(round, levels)))
    assert DAdaQuant().levels_by_weight(1, {4: 0.999, 7: 0.001}) == {4: 1, 7: 1}  # never below 1


def test_a_fixed_step_has_the_same_distance_of_levels_for_large_and_small_updates() -> None:
    assert FixedStep(resolution=0.01).client_choice == ("fixed-step", 0.01)
    for size in (1.0, 0.1, 0.001):
        s = FixedStep.choose_levels(0.01, UPDATE * np.float32(size))
        assert 0.5 * size / s == pytest.approx(0.01)
    assert FixedStep.choose_levels(0.01, UPDATE * 0) > 0


def test_feddq_takes_fewer_bits_as_updates_shrink_and_never_a_coarser_step_than_its_resolution() -> None:
    assert FedDQ(resolution=0.01).client_choice == ("feddq", 0.01)
    chosen = []
    for size in (4.0, 1.0, 0.25):
        update = UPDATE * np.float32(size)
        s = FedDQ.choose_levels(0.01, update)
        chosen.append(s)
        assert np.abs(update).max() / s <= 0.01
    assert chosen == sorted(chosen, reverse=True)
    assert len(set(chosen)) == 3
    assert FedDQ.choose_levels(0.01, UPDATE * 0) == 1


def test_a_cosine_goes_from_start_to_end_and_stays() -> None:
    chosen = play(Cosine(s0=1, s_end=9, rounds=8), [1.0] * 12)
    assert chosen[0] == 1
    assert chosen[4] == pytest.approx(5)
    assert chosen[8:] == pytest.approx([9] * 4)
    assert chosen == sorted(chosen)


def test_a_rule_that_leaves_the_choice_to_the_server_has_none_for_clients() -> None:
    assert AdaQuant().client_choice is None
    with pytest.raises(RuleError, match="server"):
        AdaQuant.choose_levels(1.0, UPDATE)


# Cost-aware.


def paper_survey(rule: CostAware, s: float, d: int = 10_000) -> Survey:
    """What a survey would say if the paper's cost and variance were true."""
    levels = rule.candidates(s)
    costs = tuple(d * math.log2(4 * x) / 8 for x in levels)
    return Survey(levels, tuple(d / x**2 for x in levels), costs, loss=1.0)


def sparse_survey(rule: CostAware, s: float) -> Survey:
    """What an entropy-coded wire is like at few levels: cost and variance are proportional to s and 1 / s."""
    levels = rule.candidates(s)
    return Survey(levels, tuple(500 / x for x in levels), tuple(100 + 1400 * x for x in levels), loss=1.0)


def sharp_survey(rule: CostAware, s: float) -> Survey:
    """The same on a loss to which the noise of s = 1 adds a twelfth."""
    return replace(sparse_survey(rule, s), harm=1 / 12 / s)


def surveyed(rule: CostAware, losses: list[float], survey=paper_survey, eta: list[float] | None = None) -> list[float]:  # type: ignore[no-untyped-def]
    state, chosen, last = rule.init(), [], None
    for k, loss in enumerate(losses):
        state = rule.plan(state, bits=0, dimension=10_000, loss=loss, eta=eta[k] if eta else 0.1, survey=last)
        assert state.s is not None
        chosen.append(state.s)
        last = survey(rule, state.s) if rule.wants_survey(state) else None
    return chosen


@pytest.mark.parametrize("s0", [2.0, 8.0])
def test_under_the_papers_cost_and_variance_the_rule_is_eq_13(s0: float) -> None:
    losses = [2.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3, 0.2]
    chosen = surveyed(CostAware(s0=s0, every=1), losses)
    for s, loss in list(zip(chosen, losses, strict=True))[1:]:
        assert s == pytest.approx(adaptive_levels(s0, f0=2.0, fk=loss), rel=0.02)


def test_a_falling_learning_rate_lowers_s_as_in_eq_13() -> None:
    chosen = surveyed(CostAware(s0=8.0, every=1), [2.0] * 3, eta=[0.1, 0.1, 0.05])
    assert chosen[2] == pytest.approx(4.0, rel=0.02)


def test_s0_is_the_optimum_at_the_start_whatever_the_curves_are() -> None:
    assert surveyed(CostAware(s0=0.7, every=1), [2.0] * 4, sparse_survey) == pytest.approx([0.7] * 4, rel=0.02)


def test_noise_never_adds_more_to_the_loss_than_it_may() -> None:
    surveys = iter([sparse_survey, *[sharp_survey] * 9])  # harmless at the start, and then no longer
    chosen = surveyed(CostAware(s0=0.3, every=2, harm=0.05), [2.0] * 16, lambda rule, s: next(surveys)(rule, s))
    assert chosen[1:4] == pytest.approx([0.3, 0.6, 1.2], rel=0.02)  # a survey every round while more may be right
    assert chosen[-1] == pytest.approx(1 / 12 / 0.05, rel=0.02)
    assert surveyed(CostAware(s0=3.0, every=1, harm=0.05), [2.0] * 3, sharp_survey)[-1] == pytest.approx(3, rel=0.02)


def test_a_loss_that_noise_leaves_without_a_number_asks_for_finer_levels() -> None:
    rule = CostAware(s0=0.5, every=1)
    state = rule.plan(rule.init(), bits=0, dimension=9, loss=2.0, eta=0.1)
    lost = replace(sparse_survey(rule, 0.5), loss=math.nan, harm=math.inf)
    assert rule.plan(state, bits=0, dimension=9, loss=2.0, eta=0.1, survey=lost).s == pytest.approx(1.0, rel=0.02)


def test_a_rising_loss_never_lowers_s_and_a_blow_up_doubles_it() -> None:
    losses = [2.0, 1.0, 0.5, 0.55, 0.6, 0.9, 2.0, 50.0, math.nan]
    ours = surveyed(CostAware(s0=1.0, every=1), losses, sparse_survey)
    assert ours == sorted(ours)
    assert ours[6] == pytest.approx(2 * ours[5])
    literal = play(AdaQuant(s0=4, guard=False), losses[:8])
    assert literal[7] == 1 < literal[2]  # the paper's rule, taken literally, feeds the blow-up


def test_after_a_blow_up_the_rule_stays_on_the_safe_side() -> None:
    chosen = surveyed(CostAware(s0=1.0, every=1), [2.0, 1.0, 1.5, 1.0, 1.0], sparse_survey)
    assert chosen[2] > 1.9 * chosen[1]
    assert chosen[3:] == pytest.approx([math.sqrt(2) * chosen[1]] * 2, rel=0.03)


def judged(rule: CostAware, losses: list[float]) -> tuple[list[Verdict], float]:
    """The verdict after each of these losses, and s in the end."""
    state, verdicts = rule.init(), []
    for loss in losses:
        state, verdict = rule.judge(state, loss)
        verdicts.append(verdict)
    assert state.s is not None
    return verdicts, state.s


def test_a_round_that_ruins_the_training_is_taken_back_and_s_doubles() -> None:
    assert judged(CostAware(s0=0.5), [2.0, 1.5, 2.9, 1.4, 0.5, 3.1]) == ([KEEP] * 6, 0.5)
    assert judged(CostAware(s0=0.5), [2.0, 1.0, 20.0, 1.0]) == ([KEEP, KEEP, ROLL_BACK, KEEP], 1.0)
    for lost in (float("inf"), float("nan")):
        assert judged(CostAware(s0=0.5), [2.0, lost, lost, 1.0]) == ([KEEP, ROLL_BACK, ROLL_BACK, KEEP], 2.0)


def test_the_first_rounds_have_nothing_to_be_compared_with() -> None:
    assert judged(CostAware(s0=0.5), [float("inf"), 2.0]) == ([KEEP, KEEP], 0.5)


def test_a_training_that_diverges_without_noise_is_given_up() -> None:
    assert judged(CostAware(s0=0.5), [2.0, *[50.0] * 7])[0] == [KEEP, *[ROLL_BACK] * 6, KEEP]


def test_s_stays_finer_after_a_round_was_taken_back() -> None:
    rule = CostAware(s0=0.7, every=1)
    state = rule.plan(rule.init(), bits=0, dimension=1, loss=2.0, eta=0.1)
    state, _ = rule.judge(state, 2.0)
    state = rule.plan(state, bits=0, dimension=1, loss=2.0, eta=0.1, survey=sparse_survey(rule, 0.7))
    state, verdict = rule.judge(state, 90.0)
    state = rule.plan(state, bits=0, dimension=1, loss=2.0, eta=0.1, survey=sparse_survey(rule, 1.4))
    assert verdict is ROLL_BACK
    assert state.s == pytest.approx(math.sqrt(2) * 0.7, rel=0.05)


def searched(
    rule: CostAware, harms: list[float], losses: list[float] | None = None
) -> tuple[list[Verdict], list[float]]:
    """The verdict, and s, in rounds at whose start noise does this harm to a loss of 2."""
    state, verdicts, chosen, survey = rule.init(), [], [], None
    for harm, loss in zip(harms, losses or [2.0] * len(harms), strict=True):
        state = rule.plan(state, bits=0, dimension=1, loss=loss, eta=0.1, survey=survey)
        assert state.s is not None
        assert rule.wants_survey(state)
        survey = replace(sparse_survey(rule, state.s), loss=2.0, harm=harm)
        state, verdict = rule.judge(state, 2.0, survey)
        verdicts.append(verdict)
        chosen.append(state.s)
    return verdicts, chosen


def test_a_start_whose_noise_does_harm_is_taken_back_until_the_levels_are_fine_enough() -> None:
    rule = CostAware(s0=0.1, every=1, harm=0.03)
    verdicts, chosen = searched(rule, [2.0, math.nan, 0.2, 0.05, 0.05])
    assert verdicts == [REJECT, REJECT, REJECT, KEEP, KEEP]  # 0.05 is 2.5 % of the loss
    assert chosen[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert chosen[4] == pytest.approx(chosen[3], rel=0.02)  # the bound goes on from there, not from s0


def test_the_next_try_is_clearly_finer_where_the_harm_is_only_just_too_much() -> None:
    _, chosen = searched(CostAware(s0=1.0, every=1, harm=0.03), [0.0601, 0.0])
    assert chosen[1] > 1.2 * chosen[0]


def test_a_start_whose_noise_does_none_is_kept() -> None:
    assert searched(CostAware(s0=0.1, every=1), [0.0, -0.01]) == ([KEEP, KEEP], pytest.approx([0.1, 0.1], rel=0.02))


def test_harm_takes_nothing_back_once_training_has_started() -> None:
    verdicts, chosen = searched(CostAware(s0=0.1, every=1), [0.0, 2.0, 2.0])
    assert verdicts == [KEEP] * 3
    assert chosen[2] == pytest.approx(2 * chosen[1])


def test_a_loss_that_rises_does_not_end_the_search_for_a_start() -> None:
    verdicts, chosen = searched(CostAware(s0=0.1, every=5), [2.0] * 4, losses=[2.0, 2.0, 2.8, 2.0])
    assert verdicts == [REJECT] * 4
    assert chosen == pytest.approx([0.1, 0.2, 0.4, 0.8])


def test_the_finest_levels_are_not_taken_back_and_never_exceeded() -> None:
    verdicts, chosen = searched(CostAware(s0=40_000.0, every=1), [2.0] * 4)
    assert (verdicts[0], verdicts[-1]) == (REJECT, KEEP)
    assert chosen[-1] == MAX_LEVELS


def test_a_start_is_kept_where_more_levels_would_not_help() -> None:
    rule = CostAware(s0=1.0, every=1)
    state = rule.plan(rule.init(), bits=0, dimension=1, loss=2.0, eta=0.1)
    assert state.s is not None
    flat = replace(sparse_survey(rule, state.s), errors=(3.0,) * 5, loss=2.0, harm=2.0)
    assert rule.judge(state, 2.0, flat)[1] is KEEP


def test_a_run_that_is_resumed_after_its_first_round_finds_its_start() -> None:
    rule = CostAware(s0=0.5, every=1)
    state = rule.plan(rule.init(), bits=0, dimension=1, loss=2.0, eta=0.1)
    state = RuleState(**json.loads(json.dumps(state.to_dict())))
    state = rule.plan(state, bits=0, dimension=1, loss=2.0, eta=0.1, survey=sparse_survey(rule, 0.5))
    assert state.s == pytest.approx(0.5, rel=0.02)
    assert state.memory["mu"] is not None


def test_a_survey_is_there_after_the_first_round_and_whenever_the_loss_is() -> None:
    rule = CostAware(every=3)
    state, asked = rule.init(), []
    for _ in range(7):
        state = rule.plan(state, bits=0, dimension=10, loss=1.0, eta=0.1)
        asked.append(rule.wants_survey(state))
    assert asked == [True, False, True, False, False, True, False]


# All of them.


@pytest.mark.parametrize("method", methods())
def test_every_rules_state_survives_json(method: str) -> None:
    rule = Config(method=method, norm="linf" if method == "feddq" else "").rule()
    state = rule.plan(rule.init(), bits=0, dimension=10, loss=1.5, eta=0.1)
    assert RuleState(**json.loads(json.dumps(state.to_dict()))) == state


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"method": "cost-aware", "rule_s0": -1.0}, "s0 = -1.0"),
        ({"method": "dadaquant", "patience": 0}, "patience"),
        ({"method": "feddq", "norm": "linf", "resolution": 0.0}, "resolution"),
        ({"method": "cosine", "s_end": 0.0}, "s0 = 0.0"),
        ({"method": "cost-aware", "brake": 1.0}, "brake"),
        ({"cost": "money"}, "cost"),
        ({"method": "adaquant", "s0": 1.5}, "whole number"),
        ({"method": "adaquant-smooth"}, "method = 'adaquant' with loss = 'round' and loss_smoothing = 0.9"),
    ],
)
def test_bad_settings_are_named(keys: dict[str, object], says: str) -> None:
    with pytest.raises((ConfigError, RuleError), match=says):
        Config(**keys)  # type: ignore[arg-type]
