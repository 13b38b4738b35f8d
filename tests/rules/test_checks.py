"""What a rule of the user's own returns: numbers are taken as they are meant, and the rest names the rule's line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.rules.checks import judged, planned

SEEN = aq.Seen(bits=0, dimension=9, loss=1.0)


class Mine(aq.Rule):
    """Returns what it is given."""

    name = "mine"

    def __init__(self, returned: Any, verdict: Any = None) -> None:
        self.returned, self.verdict = returned, verdict

    def plan(self, state: dict[str, Any], seen: aq.Seen) -> Any:
        return self.returned() if callable(self.returned) else self.returned

    def judge(self, state: dict[str, Any], report: aq.Report) -> Any:
        return self.verdict


def test_numbers_of_numpy_become_plain_ones() -> None:
    state, plan = planned(Mine(({"a": np.float32(2)}, aq.Plan(levels=np.int64(3)))), {}, SEEN)
    assert (type(plan.levels), plan.levels) == (int, 3)
    assert (type(state["a"]), state["a"]) == (float, 2.0)


@pytest.mark.parametrize("levels", ["four", math.nan, 0, 10**9, True, {0: "many"}])
def test_levels_that_are_none_name_the_line_and_what_is_expected(levels: Any) -> None:
    words = r"Mine.plan \(test_checks.py, line \d+\) returned as levels .*; expected a number above 0, up to 65535\."
    with pytest.raises(aq.RuleError, match=words):
        aq.Server(np.zeros(9, np.float32), rule=Mine(({}, aq.Plan(levels=levels))))


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (4, "returned 4; expected a state and a plan"),
        (({}, 4), "expected a state and a plan"),
        ((3, aq.Plan()), "expected a state and a plan"),
        (({"a": object()}, aq.Plan()), r"returned state\['a'\] = <object.*which can be saved"),
        (({"a": [np.zeros(2)]}, aq.Plan()), r"state\['a'\]\[0\] = array"),
        (({}, aq.Plan(levels=3, max_error=0.5)), "only one of levels, max_error and resolution"),
        (({}, aq.Plan(max_error=-1.0)), "as max_error -1.0; expected a number above 0"),
        (({}, aq.Plan(levels={3: 4})), "expected levels for every client of the round; client 0 has none"),
        (({}, aq.Plan(levels=3, feedback="yes")), "as feedback 'yes'"),
        (({1: 2}, aq.Plan(levels=3)), "returned state = {1: 2}"),
        (({}, aq.Plan(levels=3, quantizer="unifrom")), "as quantizer 'unifrom'; expected one of uniform, rotated"),
        (lambda: 1 / 0, r"Mine.plan raised ZeroDivisionError: division by zero \(test_checks.py, line \d+\)"),
    ],
)
def test_a_plan_that_is_none_is_refused_before_anything_is_sent(returned: Any, words: str) -> None:
    with pytest.raises(aq.RuleError, match=words):
        planned(Mine(returned), {}, SEEN, clients=[0])


def test_a_verdict_and_a_start_that_are_none_are_refused() -> None:
    for verdict in (None, aq.Verdict.KEEP, ({}, "keep"), (set(), aq.Verdict.KEEP)):
        with pytest.raises(aq.RuleError, match="expected a state and a verdict"):
            judged(Mine(None, verdict), {}, aq.Report(1.0))

    class Start(Mine):
        def init(self) -> Any:
            return self.verdict() if callable(self.verdict) else self.verdict

    for start, words in ((None, "expected a dictionary"), (lambda: 1 / 0, "Start.init raised ZeroDivisionError")):
        with pytest.raises(aq.RuleError, match=words):
            aq.Server(np.zeros(9, np.float32), rule=Start(({}, aq.Plan()), start))


def test_needs_are_a_set_of_needs() -> None:
    rule = Mine(({}, aq.Plan()))
    rule.needs = "loss"  # type: ignore[assignment,misc]
    with pytest.raises(aq.RuleError, match=r"Mine.needs = 'loss': expected a frozenset"):
        aq.Server(np.zeros(9, np.float32), rule=rule)
