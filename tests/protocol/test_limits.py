"""Limits on an update: of its norm, refused or clipped, and of each array that is not quantized (docs/security.md)."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.coding import levels_of
from adaquantfl.codecs.frame import read_frame
from adaquantfl.protocol.limits import NormLimit
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.quantizers.base import top
from adaquantfl.quantizers.registry import find, names
from support import quadratic
from support.rounds import EXAMPLES, Federation, federation

D = 400
P = np.array(EXAMPLES) / sum(EXAMPLES)


def large(round: int, client: int, reply: Reply) -> Reply:
    """Client 1 sends an update that is far too large, of the same quantizer and levels."""
    if client != 1:
        return reply
    levels = aq.decode(reply.frame)
    return replace(reply, frame=aq.encode(replace(levels, scale=levels.scale * np.float32(1000))))


def decoded(run: Federation) -> list[np.ndarray]:
    frames = [run.frame(client) for client in sorted(run.replies)]
    return [aq.decode(frame).dequantize().astype(np.float64) for frame in frames]


@pytest.mark.parametrize("limit", [0.5, "2x"])
def test_a_large_update_is_scaled_down_to_the_limit(limit: float | str) -> None:
    run = federation(D, large, max_update_norm=limit, norm_action="clip", rule=aq.Fixed(bits=4))
    before, line = run.server.weights, run.play()
    updates = decoded(run)
    norms = [float(np.linalg.norm(update)) for update in updates]
    bound = limit if isinstance(limit, float) else float(limit[:-1]) * np.median(norms)
    factors = {client: bound / norm for client, norm in enumerate(norms) if norm > bound}
    assert 1 in factors
    assert line["clipped"] == pytest.approx(factors)
    assert line["clients"] == 3
    assert "missing" not in line
    expected = before + sum(
        p * factors.get(i, 1.0) * update for i, (p, update) in enumerate(zip(P, updates, strict=True))
    )
    np.testing.assert_allclose(run.server.weights, expected, rtol=1e-5, atol=1e-6)


def test_the_limit_is_on_what_a_frame_decodes_to_whatever_its_header_says() -> None:
    """A client that sets all elements to the highest level is sqrt(d) times as large as its header says."""

    def full(round: int, client: int, reply: Reply) -> Reply:
        levels = aq.decode(reply.frame)
        top = np.full_like(levels.values, levels.s)
        return replace(reply, frame=aq.encode(replace(levels, values=top))) if client == 1 else reply

    rule = aq.Fixed(bits=8)
    limits = {
        action: federation(D, full, max_update_norm="2x", norm_action=action, rule=rule)
        for action in ("refuse", "clip")
    }
    with pytest.raises(aq.EngineError, match=r"client 1: its update has norm .* above 2 times the median"):
        limits["refuse"].play()
    assert list(limits["clip"].play()["clipped"]) == [1]


@pytest.mark.parametrize(("limit", "action"), [(1e6, "clip"), ("100x", "refuse")])
def test_a_limit_that_nobody_exceeds_changes_nothing(limit: float | str, action: str) -> None:
    plain, limited = federation(D), federation(D, max_update_norm=limit, norm_action=action)
    for _ in range(2):
        assert plain.play() == limited.play()
    assert plain.server.weights.tobytes() == limited.server.weights.tobytes()


@pytest.mark.parametrize("missing", [False, True])
def test_clients_that_add_up_the_frames_have_the_servers_model(missing: bool) -> None:
    def change(round: int, client: int, reply: Reply) -> Reply | str:
        return "no answer." if missing and client == 2 and round == 1 else large(round, client, reply)

    models = {}
    for downlink in ("model", "exact"):
        run = federation(D, change, max_update_norm="1.5x", norm_action="clip", downlink=downlink, min_clients=2)
        for _ in range(4):
            assert 1 in run.play()["clipped"]
        orders = run.server.open()
        assert bool(Order.unpack(orders[0]).layout) == (downlink == "model")  # "exact" sends no whole model
        for client in (0, 1):
            np.testing.assert_array_equal(run.clients[client].open(orders[client]), run.server.weights)
        models[downlink] = run.server.weights.tobytes()
    assert models["model"] == models["exact"]


def test_buffers_of_a_clipped_client_move_by_the_same_factor() -> None:
    server = aq.Server(quadratic.start(), rule=aq.FullPrecision(), max_update_norm=3.0, norm_action="clip")
    client, start = aq.Client(0), quadratic.start()
    weights = client.open(server.open([0])[0])
    trained, loss = quadratic.train(0, weights)
    server.receive(0, client.reply(trained, loss))
    factor = server.factors[0]
    clipped = server.heard()[0]
    closed = server.close()
    assert closed.facts["clipped"] == {0: factor}
    for name in quadratic.SHAPES:
        expected = start[name] + factor * (trained[name] - start[name])
        np.testing.assert_allclose(closed.weights[name], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(clipped[name], expected, rtol=1e-4, atol=1e-5)
    assert closed.weights["norm.num_batches_tracked"] == round(factor * 3)
    moved = np.concatenate([(closed.weights[name] - start[name]).ravel() for name in quadratic.SHAPES])
    assert float(np.linalg.norm(moved)) == pytest.approx(3.0, rel=1e-4)


def test_a_server_restored_in_mid_round_clips_what_it_heard_before_also_with_a_new_limit() -> None:
    models = []
    for limit in ("1.5x", 0.0):
        server = aq.Server(np.zeros(D, np.float32), max_update_norm=limit, norm_action="clip", rule=aq.Fixed(bits=8))
        for i, order in server.open(range(3)).items():
            client = aq.Client(i)
            server.receive(i, client.reply(client.open(order) + 100**i, 1.0))
        stages = aq.Server(server.weights, max_update_norm="1.5x", norm_action="clip", rule=aq.Fixed(bits=8)).stages
        closed = aq.Server.restore(server.state(), stages=stages).close()
        models.append((closed.weights.tobytes(), closed.facts["clipped"]))
    assert models[0] == models[1]
    assert list(models[0][1]) == [2]


def test_a_norm_that_is_not_a_number_is_refused_by_a_limit_that_clips() -> None:
    limit = NormLimit(absolute=1.0, clip=True)
    assert list(limit.refused({0: float("nan"), 1: 5.0}, median=1.0)) == [0]
    assert limit.factors({0: float("nan"), 1: 5.0}, median=1.0) == {1: 0.2}


# ----------------------------------------------------------------------------- what a frame decodes to

SIZE = 4096
KINDS = [(name, norm) for name in names() for norm in find(name).tags]


@pytest.mark.parametrize(("name", "norm"), KINDS)
@pytest.mark.parametrize("s", [1, 7])
def test_the_decoded_norm_is_within_the_documented_bound(name: str, norm: str, s: int) -> None:
    """At most 1 + sqrt(d) / s times that of the client's own update, for dense and for sparse ones."""
    kind, rng = find(name), np.random.default_rng(s)
    for x in (rng.standard_normal(SIZE), np.eye(1, SIZE)[0], np.ones(SIZE), rng.standard_normal(SIZE) ** 5):
        vector = x.astype(np.float32)
        levels = aq.quantize(vector, min(s, kind.traits.most), 1, quantizer=name, norm=norm or None)
        bound = (1 + math.sqrt(SIZE) / levels.s) * np.linalg.norm(vector)
        assert np.linalg.norm(levels.dequantize()) <= bound


@pytest.mark.parametrize(("name", "norm"), KINDS)
def test_no_accepted_frame_moves_the_model_further_than_the_limit(name: str, norm: str) -> None:
    """Frames whose levels are as large as they can be, with scales that say little of it."""
    accepted = 0
    for scale in (1e-4, 1e-3, 1e-2, 0.1, 1.0):
        server = aq.Server(
            np.zeros(SIZE, np.float32), rule=aq.Fixed(bits=1), quantizer=name, norm=norm, max_update_norm=3.0
        )
        order, client = server.open([0])[0], aq.Client(0)
        given: Any = client.open(order)
        reply = Reply.unpack(client.reply(given + np.float32(1), loss=1.0))
        known = Order.unpack(order).known(server.current.layout.lengths)
        levels = levels_of(read_frame(reply.frame, SIZE, known))
        largest = top(find(name).traits, levels.s, levels.number)
        scales: Any = np.full_like(levels.scale, scale)
        hostile = replace(levels, values=np.full_like(levels.values, largest), scale=scales)
        try:
            server.receive(0, replace(reply, frame=aq.encode(hostile)).pack())
        except aq.Refused:
            continue
        accepted += 1
        moved: Any = server.close().weights
        assert np.linalg.norm(moved.astype(np.float64)) <= 3.0 * (1 + 1e-6)
    assert accepted


# -------------------------------------------------------------------- arrays that are not quantized

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
