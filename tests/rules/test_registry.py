"""Rules by name: from a configuration, from a written-down state, and from other people's packages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.rules import State
from adaquantfl.rules.registry import BASELINES, RULES, make, methods
from support.rounds import Federation


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry as it is, and as it was after the test."""
    RULES.names()  # all are loaded
    for part in ("_named", "_owners"):
        monkeypatch.setattr(RULES, part, dict(getattr(RULES, part)))


@dataclass(frozen=True)
class Staircase(aq.Rule):
    """One level more every few rounds."""

    rounds: int = 2
    name = "staircase"

    def init(self) -> State:
        return {"round": 0}

    def plan(self, state: State, seen: aq.Seen) -> tuple[State, aq.Plan]:
        round = state["round"]
        return {"round": round + 1}, aq.Plan(levels=1 + round // self.rounds)


def test_every_rule_is_made_by_its_name_and_read_back_from_a_state() -> None:
    ours = ("auto", "adaquant", "dadaquant", "feddq", "fixed", "fp32")  # other tests bring rules that cannot be
    assert {*ours, *BASELINES} <= methods().keys()
    for method in (*ours, *BASELINES):
        norm = "linf" if method == "feddq" else ""
        server = aq.Server(np.zeros(3, np.float32), rule=method, norm=norm)
        assert aq.Server.restore(server.state()).stages.rule == make(method) == server.stages.rule


def test_a_rule_of_ones_own_is_known_once_it_is_registered(table: None) -> None:
    with pytest.raises(aq.RuleError, match="staircase"):
        make("staircase")
    run = Federation(aq.Server(np.zeros(20, dtype=np.float32), rule=Staircase(rounds=2)), clients=2)
    assert [run.play()["s"] for _ in range(3)] == [1, 1, 2]
    tree = run.server.state()
    assert make("staircase") == Staircase(), "a server that has it makes it known"
    RULES.forget()  # as in another process
    with pytest.raises(aq.RuleError, match="staircase"):
        aq.Server.restore(tree)
    restored = aq.Server.restore(tree, rule=Staircase())
    RULES.register(Staircase)
    assert aq.Server.restore(tree).open([0, 1]) == restored.open([0, 1]) == run.server.open([0, 1])


def test_what_is_no_rule_is_refused_and_a_name_gets_a_suggestion(table: None) -> None:
    with pytest.raises(aq.RuleError, match="not a subclass of Rule"):
        RULES.register(dict)  # type: ignore[type-var]
    for look in (RULES.find, make):
        with pytest.raises(aq.RuleError, match="Did you mean 'adaquant'"):
            look("adaquantt")
