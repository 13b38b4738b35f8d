"""One client that lies about its loss moves no rule far; honest rounds stay as they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol import round as rounds
from adaquantfl.protocol.limits import bounded
from adaquantfl.protocol.messages import Reply
from adaquantfl.rules.registry import BASELINES, make, methods

CLIENTS, DIMENSION, ROUNDS, LIAR = 8, 400, 10, 5
RULES = [name for name in methods() if name not in BASELINES]
TARGET = np.random.default_rng(0).normal(size=DIMENSION).astype(np.float32)


LIES: dict[str, Callable[[Reply], Reply]] = {
    "large": lambda reply: replace(reply, loss=1e300),
    "zero": lambda reply: replace(reply, loss=0.0),
    "large in the first round": lambda reply: replace(reply, loss=1e300) if reply.round == 0 else reply,
}


def run(rule: str, lie: Callable[[Reply], Reply] = lambda reply: reply, **settings: Any) -> tuple[Any, list[Any]]:
    """The distance to the target after some rounds, and the facts of the rounds. A client trains by a noisy step."""
    server = aq.Server(np.zeros(DIMENSION, np.float32), rule=make(rule), seed=1, **settings)
    ends, lines = [aq.Client(number) for number in range(CLIENTS)], []
    for round in range(ROUNDS):
        orders = server.open(range(CLIENTS), eta=0.1)
        for number, end in enumerate(ends):
            weights: Any = end.open(orders[number])
            noise = np.random.default_rng([round, number]).normal(size=DIMENSION) * 0.05
            loss = float(np.mean((weights - TARGET) ** 2)) + 0.05
            trained = weights + 0.3 * (TARGET - weights + noise.astype(np.float32))
            reply = Reply.unpack(end.reply(trained, loss, 100))
            server.receive(number, (lie(reply) if number == LIAR else reply).pack())
        lines.append(server.close().facts)
    return float(np.linalg.norm(server.weights - TARGET)), lines


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("rule", RULES)
def test_one_liar_moves_no_rule_far_and_is_named(rule: str, lie: str) -> None:
    honest, plain = run(rule)
    found, lines = run(rule, LIES[lie])
    assert found <= 1.5 * honest + 0.5
    assert lines[-1]["wire_bytes_up"] <= 2 * plain[-1]["wire_bytes_up"]
    named = [line.get("bounded", []) for line in lines]
    assert all(one in ([], [LIAR]) for one in named)
    if lie in ("large", "large in the first round"):
        assert named[0] == [LIAR]
        assert lines[0]["round_loss"] > 1e290  # what clients said


@pytest.mark.parametrize("rule", ["auto", "adaquant"])
def test_honest_rounds_are_as_without_bounds(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = run(rule)
    monkeypatch.setattr(rounds, "bounded", lambda losses, *_: dict(losses))
    assert run(rule) == now
    assert not any("bounded" in line for line in now[1])


def test_a_liar_cannot_have_rounds_rolled_back() -> None:
    _, lines = run("adaquant", LIES["large"], undo=3.0)
    assert not any("undone" in line for line in lines)


def test_bounds_are_those_of_the_weighted_median() -> None:
    p = {0: 0.1, 1: 0.1, 2: 0.5, 3: 0.3}
    assert bounded({0: 1.0, 1: 2.0, 2: 3.0, 3: 31.0}, p) == {0: 1.0, 1: 2.0, 2: 3.0, 3: 30.0}
    assert bounded({0: 0.1, 1: 0.0, 2: 3.0, 3: math.nan}, p) == {0: 0.3, 1: 0.3, 2: 3.0, 3: 30.0}
    either_sign = {0: -1.0, 1: 0.5, 2: -1e30, 3: 1.0}
    assert bounded(either_sign, dict.fromkeys(range(4), 0.25), signed=True) == {**either_sign, 2: -10.0}
    for told in ({0: 1.0, 1: math.inf, 2: math.inf}, {0: 0.0}, {}):  # most clients have no number
        assert bounded(told, dict.fromkeys(told, 1.0)) == told
