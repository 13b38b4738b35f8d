"""Rules by name: from a configuration, from a written-down state, and from other people's packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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


@pytest.mark.parametrize(
    ("name", "says"),
    [("adaquant", "name 'adaquant' is taken: adaquantfl has it"), ("", "is named ''"), ("My Rule", "a-z, 0-9")],
)
def test_a_name_that_is_taken_or_cannot_be_one_is_refused(table: None, name: str, says: str) -> None:
    with pytest.raises(aq.RuleError, match=says):
        registry.register(type("Mine", (Staircase,), {"name": name}))


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


PACKAGE = """
from adaquantfl import Plan, Rule

class Nine(Rule):
    '''Nine levels in every round.'''
    name = "nine"
    def plan(self, state, seen):
        return state, Plan(levels=9)
"""
CHECK = """
from adaquantfl.rules import registry
assert registry.make("nine").plan({}, None)[1].levels == 9
assert registry.methods()["nine"].line == "Nine levels in every round."
assert registry.from_description({"name": "nine", "settings": {}}).name == "nine"
"""


def installed(folder: Path, value: str) -> Path:
    """A package in this folder whose entry point names a rule."""
    (folder / "their_rules.py").write_text(PACKAGE)
    info = folder / "their_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[adaquantfl.rules]\nnine = {value}\n")
    return folder


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_the_rule_of_an_installed_package_is_a_method(tmp_path: Path) -> None:
    done = python(CHECK, installed(tmp_path, "their_rules:Nine"))
    assert done.returncode == 0, done.stderr


def test_a_package_whose_rule_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    done = python(CHECK, installed(tmp_path, "their_rules:Ten"))
    assert "The rule 'nine' of the package their-rules cannot be used" in done.stderr
