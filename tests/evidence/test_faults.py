"""Runs in which clients, messages and the server fail: studies.faults plays them, and says what must hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import adaquantfl as aq
from evidence.studies import faults
from evidence.studies.fault_record import Violation
from evidence.studies.faults import Bench, Scenario

CHUNK = 25


@pytest.mark.parametrize("first", range(0, 6 * CHUNK, CHUNK))
def test_runs_with_faults_end_in_the_model_of_the_replies_that_counted(first: int) -> None:
    assert faults.run_many(first, CHUNK)["failures"] == {}


@pytest.mark.slow
def test_ten_thousand_runs_with_faults() -> None:
    found = faults.run_many(0, 10_000)
    assert found["failures"] == {}
    assert found["rounds"] >= 20_000


SETTINGS: dict[str, dict[str, Any]] = {
    "adaquant, exact": {"secrets": True},
    "nearest with feedback, late": {"rule": "2bit", "quantizer": "nearest", "downlink": "late"},
    "auto, drawn clients": {"rule": "auto", "known": True, "seed": 5},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_server_killed_at_any_step_ends_in_the_same_model(name: str) -> None:
    scenario = Scenario(**{"seed": 1, "rounds": 2, "clients": 2, "least": 0, "codec": "fixed", **SETTINGS[name]})
    quiet = Bench(scenario)
    quiet.run()
    kills = Counter[str]()
    for place in range(quiet.points):
        killed = Bench(Scenario(**{**vars(scenario), "kill_at": place}))
        kills += killed.run()
        assert killed.rounds[-1].digest == quiet.rounds[-1].digest, f"killed at step {place}"
    steps = {kind for kind in kills if kind.startswith("kill: ")}
    assert len(steps) >= 8  # open, receive, before close and close: before and after the state is written
    assert sum(kills[kind] for kind in steps) == quiet.points


def accepts_late_replies(server: aq.Server, client: int, reply: bytes) -> None:
    """A server with a fault: a reply that it cannot use counts as the last one that it could."""
    try:
        received(server, client, reply)
    except aq.Refused:
        opened = server._opened()
        if opened.heard and client in opened.orders:
            opened.heard.setdefault(client, next(iter(opened.heard.values())))


def forgets_replies(server: aq.Server) -> dict[str, Any]:
    """A state with a fault: it lacks a reply."""
    tree = state(server)
    if "open" in tree:
        tree["open"]["replies"] = dict(list(tree["open"]["replies"].items())[1:])
    return tree


received, state = aq.Server.receive, aq.Server.state


@pytest.mark.parametrize(("method", "broken"), [("receive", accepts_late_replies), ("state", forgets_replies)])
def test_the_bench_finds_a_planted_fault(method: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aq.Server, method, broken)
    monkeypatch.setattr(faults, "STEPS_PER_ROUND", 100)
    assert faults.run_many(0, 10)["failures"]


def test_a_run_that_never_ends_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "_arrive", lambda bench, message: None)
    with pytest.raises(Violation, match="hangs"):
        Bench(Scenario(seed=0, least=2)).run()
