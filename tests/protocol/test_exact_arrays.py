"""Arrays that are not quantized have bounds of their own, under `refuse`, `clip` and krum."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq

CLIENTS, LIAR = 8, 3
DEFENCES: dict[str, dict[str, Any]] = {
    "refuse": {"max_update_norm": "10x"},
    "refuse a number": {"max_update_norm": 1e6},
    "clip": {"max_update_norm": "2x", "norm_action": "clip"},
    "krum": {"step": "krum"},
}
ATTACKS: dict[str, tuple[str, Any]] = {
    "float64": ("b.running_var", 1e299),
    "float16": ("h.running_var", 6e4),
    "int64": ("n", 58 * 10**16),
    "float32": ("a.running_var", 1e30),
    "an array that nobody moves": ("fixed", 7),
}


def play(attack: str | None = None, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """One round of 8 clients that move statistics and count batches; client 7 has trained 50 times as long."""
    model = {
        "w": np.zeros(50, np.float32), "a.running_var": np.ones(4, np.float32), "b.running_var": np.ones(4, np.float64),
        "h.running_var": np.ones(4, np.float16), "n": np.zeros(1, np.int64), "fixed": np.zeros(3, np.int32),
    }  # fmt: skip
    server = aq.Server(model, rule="8bit", exact=("*running_var",), min_clients=1, **settings)
    for client, order in server.open(range(CLIENTS)).items():
        end, rng = aq.Client(client), np.random.default_rng(client)
        given: Any = end.open(order)
        new = {name: array + (0.1 * rng.random(array.shape)).astype(array.dtype) for name, array in given.items()}
        new |= {"n": given["n"] + (500 if client == 7 else 10), "fixed": given["fixed"]}
        if attack and client == LIAR:
            name, value = ATTACKS[attack]
            new[name] = np.full_like(given[name], value)
        with suppress(aq.Refused):  # a number as limit refuses at once; the facts name the client
            server.receive(client, end.reply(new, loss=1.0))
    facts = server.close().facts
    weights: Any = server.weights
    return weights, facts


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("defence", DEFENCES)
def test_one_client_moves_no_array_far(defence: str, attack: str) -> None:
    weights, facts = play(attack, **DEFENCES[defence])
    assert LIAR in facts.get("left_out", []) or LIAR in facts.get("missing", {})
    for name in ("a.running_var", "b.running_var", "h.running_var"):
        assert np.abs(weights[name] - 1).max() < 0.2
    assert 0 < weights["n"][0] < 100
    assert not weights["fixed"].any()


@pytest.mark.parametrize("defence", DEFENCES)
def test_honest_clients_stay_whatever_they_trained(defence: str) -> None:
    _, facts = play(**DEFENCES[defence])
    assert "missing" not in facts
    assert len(facts.get("left_out", [])) == (1 if defence == "krum" else 0)  # krum leaves one out in every round


def test_the_state_in_the_middle_of_a_round_keeps_what_was_measured() -> None:
    server = aq.Server({"w": np.zeros(9, np.float32), "n": np.zeros(1, np.int64)}, max_update_norm="10x")
    for client, order in server.open([0, 1]).items():
        end = aq.Client(client)
        given: Any = end.open(order)
        server.receive(client, end.reply({"w": given["w"] + 1, "n": given["n"] + 3}, loss=1.0))
    assert aq.Server.restore(server.state()).changes == server.changes == {0: [3.0], 1: [3.0]}


def test_one_diverged_client_ends_the_round_with_a_sentence_that_names_it_and_what_to_set() -> None:
    server = aq.Server(np.zeros(4, np.float32))
    for client, order in server.open(range(3)).items():
        end = aq.Client(client)
        given: Any = end.open(order)
        reply = end.reply(given + (np.float32(np.nan) if client == 1 else 1), loss=1.0)
        if client == 1:
            with pytest.raises(aq.Refused, match="diverged"):
                server.receive(client, reply)
        else:
            server.receive(client, reply)
    with pytest.raises(aq.EngineError, match=r"(?s)client 1.*diverged.*set min_clients"):
        server.close()
