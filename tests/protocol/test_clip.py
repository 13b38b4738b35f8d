"""`norm_action = "clip"`: an update that is too large is scaled down, and every client can repeat the sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.limits import NormLimit
from adaquantfl.protocol.messages import Order, Reply
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
    factor = 3.0 / server.norms[0]
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
