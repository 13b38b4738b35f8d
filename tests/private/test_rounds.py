"""Private rounds between `private.Server` and `private.Client`."""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl import checkpoint
from adaquantfl.errors import ConfigError, EngineError, ModelNeeded, Refused
from adaquantfl.private import Central, Client, Distributed, Masked, Server
from adaquantfl.private.modular import Projection, RoundPlan, rounded
from adaquantfl.private.packet import MASKED, Packet
from adaquantfl.protocol.client import ModelCache
from adaquantfl.protocol.stages import Stages
from adaquantfl.quantizers.streams import stream_key
from adaquantfl.rules import FullPrecision
from support.private_rounds import drift, play_round

D = 3_000


def start(mode, n=12, seed=1, **settings):
    weights = np.random.default_rng(5).normal(0, 0.05, D).astype(np.float32)
    return Server(weights, mode, seed=seed, **settings), {i: Client(i) for i in range(n)}


def test_a_round_is_the_mean_of_the_rounded_updates_bit_for_bit():
    """Masks change nothing: the model is the one that the clients' whole numbers give without them."""
    server, clients = start(Masked(bits=2.0))
    train = drift(D)
    for _ in range(3):
        plans, w = [], np.array(server.weights)

        def noted(client, weights, plans=plans):
            plans.append(clients[client].order)
            return train(client, weights)

        after = play_round(server, clients, noted)
        plan, projection = plans[0], Projection(plans[0], [D])
        total = np.zeros(projection.count, np.int64)
        for i in clients:
            update = train(i, w)[0] - w
            total += rounded(projection.of(update), plan, projection.steps, stream_key(1, plan.round, i))[0]
        np.testing.assert_array_equal(
            after.weights, w + projection.back(total.astype(np.float64) / len(clients) * projection.steps)
        )
        assert after.facts["clients"] == 12
        assert after.facts["round_loss"] == pytest.approx(1.55, abs=1e-6)
        assert "paper_bits" not in after.facts


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_the_projection_is_unbiased(stride):
    """Over 2,000 rotations the mean error is within 5 deviations of its own for each sum; 1 false alarm in 10^6."""
    x = np.random.default_rng(0).normal(size=100).astype(np.float32) * np.linspace(0, 3, 100, dtype=np.float32)
    found = np.array([
        Projection(plan, [60, 40]).back(Projection(plan, [60, 40]).of(x))
        for plan in (
            RoundPlan(0, 4, 3, stride, key % stride, rotation=stream_key(1, key, -2), steps=(1.0, 1.0))
            for key in range(2000)
        )
    ])  # fmt: skip
    error, deviation = found.mean(axis=0, dtype=np.float64) - x, found.std(axis=0) / np.sqrt(2000)
    assert (np.abs(error) <= 5.5 * deviation + 1e-5).all()
    if stride == 1:
        np.testing.assert_allclose(found, np.tile(x, (2000, 1)), atol=1e-5)


def test_rounding_is_unbiased_and_never_beyond_the_levels():
    """The mean of 20,000 roundings is within 5 deviations; 1 false alarm in 10^6 a value."""
    values = np.linspace(-1.5, 1.5, 7, dtype=np.float32)
    plan = RoundPlan(0, 4, 3, levels=2, steps=(0.5,))
    steps = np.full(7, 0.5, np.float32)
    found = np.array([rounded(values, plan, steps, stream_key(0, k, 1))[0] for k in range(20_000)])
    assert np.abs(found).max() == 2
    inside = np.clip(values / 0.5, -2, 2)
    assert (np.abs(found.mean(axis=0) - inside) <= 5 * 0.5 / np.sqrt(20_000)).all()
    assert rounded(values, plan, steps, 3)[1] == 2  # the two beyond are counted


@pytest.mark.parametrize("step", range(4))
def test_a_round_survives_clients_that_drop_out_at_a_step(step):
    server, clients = start(Masked(bits=8.0), n=20)
    play_round(server, clients, drift(D))
    w = np.array(server.weights)
    after = play_round(server, clients, drift(D), gone={step: range(6)})
    in_sum = range(20) if step == 3 else range(6, 20)
    mean = np.mean([drift(D)(i, w)[0] - w for i in in_sum], axis=0)
    found = after.weights - w
    assert found @ mean / (mean @ mean) == pytest.approx(1, abs=0.2)
    assert after.facts["clients"] == len(in_sum)
    assert set(after.facts["missing"]) == set(range(6))
    later = play_round(server, clients, drift(D))  # who was gone is back
    assert later.facts["clients"] == 20


def test_too_few_clients_leave_the_model_as_it_was():
    server, clients = start("masked", n=20)
    before = server.current
    with pytest.raises(EngineError, match="needs 14"):
        play_round(server, clients, drift(D), gone={2: range(7)})
    server.return_to(before)
    assert play_round(server, clients, drift(D)).facts["round"] == 1


def test_the_controller_sees_sums_only_and_follows_them():
    server, clients = start(Masked(bits=2.0))
    facts = [play_round(server, clients, drift(D)).facts for _ in range(4)]
    assert facts[0]["s"] > 1000  # of the first round, when nothing is known
    assert [line["s"] for line in facts[1:]] == [1, 1, 1]
    assert all(1.6 < line["masked_bits"] <= 2 for line in facts[1:])  # 5 bits of one coordinate in 3
    # Four deviations hold all but one coordinate in 16,000 of an update of the usual length.
    assert facts[3]["clipped_coordinates"] <= 12
    # Where clients do not agree, the sum of many is mostly rounding noise, so that levels are added.
    server, clients = start(Masked(bits=8.0), n=40)
    for _ in range(5):
        lone = play_round(server, clients, drift(D, spread=0.002, mean=0.0)).facts
    assert lone["s"] >= 2


def test_all_bytes_are_counted():
    server, clients = start("masked", n=8)
    up = down = masked = 0
    messages, step = server.open(range(8)), 0
    while messages:
        for number in messages:
            down += len(messages[number])
            weights = None if step else clients[number].open(messages[number])
            reply = clients[number].answer(messages[number]) if step else clients[number].reply(weights + 0.01, 1.0)
            up += len(reply)
            masked = len(Packet.unpack(reply).parts[0]) if step == 2 else masked
            server.receive(number, reply)
        messages, step = server.further(), step + 1
    facts = server.close().facts
    assert (facts["wire_bytes_up"], facts["wire_bytes_down"]) == (up, down)
    assert masked == -(-round(facts["masked_bits"] * D) // 8)


def test_a_liar_who_sends_noise_loses_the_round_and_not_the_model():
    def lie(step, client, reply):
        if step != 2 or client != 3:
            return reply
        packet = Packet.unpack(reply)
        noise = np.random.default_rng(1).bytes(len(packet.parts[0]))
        return Packet(MASKED, packet.session, (noise, packet.parts[1])).pack()

    server, clients = start(Masked(bits=8.0))
    play_round(server, clients, drift(D))
    w = np.array(server.weights)
    with pytest.raises(EngineError, match="a client lied or is broken"):
        play_round(server, clients, drift(D), change=lie)
    np.testing.assert_array_equal(server.weights, w)


def test_a_client_whose_training_diverged_drops_out():
    def train(client, weights):
        return (weights * np.float32(np.nan), 1.0) if client == 2 else drift(D)(client, weights)

    server, clients = start("masked")
    facts = play_round(server, clients, train).facts
    assert facts["clients"] == 11
    assert "diverged" in facts["missing"][2]


def test_a_state_resumes_bit_for_bit(tmp_path):
    server, clients = start(Masked(bits=2.0), step="momentum")
    play_round(server, clients, drift(D))
    checkpoint.save(server.state(), tmp_path)
    stages = Stages(FullPrecision(), seed=1, step="momentum")
    other = Server.resume(checkpoint.load(tmp_path), Masked(bits=2.0), stages)
    for one in (server, other):
        one.forget(range(12))
        last = play_round(one, {i: Client(i) for i in range(12)}, drift(D)).weights
    np.testing.assert_array_equal(server.weights, last)
    server.open(range(12))
    with pytest.raises(EngineError, match="open"):
        server.state()


def test_a_client_can_be_written_down_between_any_two_messages():
    server, _ = start("masked", n=6)
    cache = {i: ModelCache() for i in range(6)}
    trees = {i: Client(i, cache[i]).state() for i in range(6)}
    messages, step = server.open(range(6)), 0
    while messages:
        for i in messages:
            client = Client.restore(checkpoint.unpack(checkpoint.pack(trees[i])), cache[i])
            weights = None if step else client.open(messages[i])
            server.receive(i, client.answer(messages[i]) if step else client.reply(weights + 0.01, 1.0))
            trees[i] = client.state()
        messages, step = server.further(), step + 1
    assert server.close().facts["clients"] == 6
    assert all(tree["round"] is None for tree in trees.values())  # nothing of the round is kept


def test_statistics_are_averaged_as_they_are():
    weights = {"w": np.zeros(500, np.float32), "bn.running_var": np.ones(3, np.float32), "steps": np.int64([7])}
    server = Server(weights, Masked(bits=8.0), seed=0)
    clients = {i: Client(i) for i in range(4)}

    def train(client, model):
        return {**model, "w": model["w"] + 0.01, "bn.running_var": np.float32([1 + client, 100, 0.5])}, 1.0

    after = play_round(server, clients, train).weights
    np.testing.assert_allclose(after["bn.running_var"], [2.5, 100, 0.5], atol=1e-6)
    assert after["steps"].tolist() == [7]  # whole numbers stay the server's


def test_an_order_that_starts_from_another_model_asks_for_the_whole_one():
    server, clients = start("masked", n=4)
    play_round(server, clients, drift(D))
    messages = server.open(range(4))
    with pytest.raises(ModelNeeded):
        Client(0).open(messages[0])
    Client(0).open(server.order(0, holds=None))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"private": "open"}, "private"),
        ({"private": "off"}, "private"),
        ({"private": None}, "private"),
        ({"private": "masked", "step": "krum"}, "'krum' compares the clients' updates"),
        ({"private": "masked", "max_update_norm": 1.0}, "nothing to look at"),
        ({"private": "masked", "max_examples": "10x"}, "nothing to look at"),
        ({"private": "masked", "stages": Stages("auto")}, "sees sums only"),
        ({"private": "central", "undo": 3.0}, "undo"),
        ({"private": "distributed", "exact": ("w",)}, "GroupNorm"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        Server({"w": np.zeros(9, np.float32), "v": np.zeros(9, np.float32)}, **settings)


@pytest.mark.parametrize(
    ("mode", "settings"),
    [(Masked, {"bits": 0}), (Masked, {"dropouts": 0.9}), (Central, {"noise": 0}), (Distributed, {"delta": 1})],
)
def test_settings_out_of_range_are_refused(mode, settings):
    with pytest.raises(ConfigError, match=r"private\.\w+ = "):
        mode(**settings)


def test_a_message_that_is_none_is_refused_on_both_sides():
    server, clients = start("masked", n=4)
    messages = server.open(range(4))
    for wrong in (b"", b"AQM1", messages[0][:-1], aq.compress(np.ones(4, np.float32), s=1, key=1)):
        with pytest.raises(Refused):
            clients[0].open(wrong)
        with pytest.raises(Refused):
            server.receive(0, wrong)
    with pytest.raises(Refused, match="not asked"):
        server.receive(9, b"")
    with pytest.raises(Refused):
        clients[0].answer(messages[0])
