"""Rules by name: from a configuration, from a written-down state, and from other people's packages."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.rules import DAdaQuant, State, registry
from support.rounds import Federation


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry as it is, and as it was after the test."""
    registry.RULES.names()  # all are loaded
    for part in ("_named", "_owners"):
        monkeypatch.setattr(registry.RULES, part, dict(getattr(registry.RULES, part)))


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


@pytest.mark.parametrize("method", registry.methods())
def test_every_rule_is_written_down_and_read_back(method: str) -> None:
    rule = registry.make(method)
    assert registry.from_description(json.loads(json.dumps(registry.describe(rule)))) == rule


def test_a_rule_of_ones_own_is_a_method_once_it_is_registered(table: None) -> None:
    with pytest.raises(aq.RuleError, match="staircase"):
        registry.make("staircase")
    assert registry.register(Staircase) is registry.find("staircase")
    assert registry.register(Staircase) is Staircase  # again changes nothing
    assert registry.make("staircase", {"rounds": 3}) == Staircase(rounds=3)
    assert registry.methods()["staircase"].line == "One level more every few rounds."
    assert registry.from_description(registry.describe(Staircase(rounds=5))) == Staircase(rounds=5)


def test_a_server_with_such_a_rule_is_restored_by_its_name(table: None) -> None:
    run = Federation(aq.Server(np.zeros(20, dtype=np.float32), rule=Staircase()), clients=2)
    assert [run.play()["s"] for _ in range(3)] == [1, 1, 2]
    tree = run.server.state()
    registry.RULES.forget()  # as in another process
    with pytest.raises(aq.RuleError, match="staircase"):
        aq.Server.restore(tree)
    restored = aq.Server.restore(tree, rule=Staircase())
    registry.register(Staircase)
    assert aq.Server.restore(tree).open([0, 1]) == restored.open([0, 1]) == run.server.open([0, 1])


def test_only_a_rule_can_be_registered(table: None) -> None:
    with pytest.raises(aq.RuleError, match="not a subclass of Rule"):
        registry.register(dict)  # type: ignore[arg-type]


def test_an_unknown_rule_or_setting_is_refused_with_a_suggestion() -> None:
    for look in (registry.find, registry.make):
        with pytest.raises(aq.RuleError, match="Did you mean 'adaquant'"):
            look("adaquantt")
    with pytest.raises(aq.RuleError, match="setting of the rule 'adaquant' named 's1'"):
        registry.make("adaquant", {"s1": 3})
    assert registry.make("dadaquant-time", {"s0": 2.0}) == DAdaQuant(s0=2.0, clients=False)
