"""A round is the paper's equations, and the ledger counts what was sent."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.raw import frame_size
from adaquantfl.protocol.messages import Order
from support.rounds import EXAMPLES, federation, reply_of

P = np.array(EXAMPLES) / sum(EXAMPLES)
NAMED = {
    "weight": np.zeros((6, 8), dtype=np.float32),
    "bias": np.zeros(6, dtype=np.float32),
    "bn.running_mean": np.zeros(6, dtype=np.float32),
    "bn.num_batches_tracked": np.array(0),
}


@pytest.mark.parametrize("rule", [aq.AdaQuant(s0=2), aq.Fixed(bits=4), aq.FullPrecision()])
def test_the_model_moves_by_the_weighted_sum_of_quantized_updates(rule: aq.Rule) -> None:
    run = federation(rule=rule)
    for _ in range(3):
        before, line = run.server.weights, run.play()
        expected = before.astype(np.float64)
        for client, p in enumerate(P):
            frame = run.frame(client)
            if line["s"] is None:
                expected += p * aq.decode_float32(frame)
            else:
                assert aq.decode(frame).s == line["s"]
                expected += p * aq.decode(frame).dequantize()
        np.testing.assert_allclose(run.server.weights, expected, rtol=1e-5, atol=1e-6)


def test_clients_weigh_by_the_examples_that_they_name_where_nothing_else_is_known() -> None:
    server = aq.Server(np.zeros(2, dtype=np.float32), rule=aq.FullPrecision())
    clients = {number: aq.Client(number) for number in (3, 7)}
    for number, order in server.open(list(clients)).items():
        weights = clients[number].open(order)
        server.receive(number, clients[number].reply(weights + number, loss=float(number), examples=10 * number))
    closed = server.close()
    assert closed.facts["round_loss"] == pytest.approx(0.3 * 3 + 0.7 * 7)
    np.testing.assert_allclose(closed.weights, [5.8, 5.8], rtol=1e-6)


def test_the_ledger_adds_up_formula_bits_and_real_bytes() -> None:
    run = federation({name: NAMED[name] for name in ("weight", "bias")}, downlink="model")
    d, bits, up, down = 54, 0, 4 * 3, 0  # f_i(w_0), once, for the first interval
    for k in range(3):
        down += sum(map(len, aq.Server.restore(run.server.state()).open().values()))
        line = run.play(loss=run.global_loss())
        bits += aq.paper_bits(d, line["s"], 2)
        up += sum(map(len, run.replies.values()))
        assert line["paper_bits"] == bits
        assert line["wire_bytes_up"] == up
        assert line["wire_bytes_down"] == down > (k + 1) * 3 * frame_size(d)
        assert line["payload_bytes_down"] == (k + 1) * 3 * 4 * d
        assert 0 < line["payload_bytes_up"] < line["wire_bytes_up"]
        assert line["clients"] == 3
    assert line["bits_per_element"] == 2


@pytest.mark.parametrize(("scope", "scales"), [("whole", 1), (25, 3), ("tensor", 1)])
def test_every_scope_counts_its_norms(scope: str | int, scales: int) -> None:
    assert federation(rule=aq.Fixed(bits=4), scope=scope).play()["paper_bits"] == aq.paper_bits(60, 15, scales)


def test_s_rises_as_the_loss_falls() -> None:
    run, losses = federation(rule=aq.AdaQuant(s0=8, interval=1.0, rounding="nearest")), []
    for _ in range(8):
        losses.append(run.global_loss())
        line = run.play(loss=losses[-1], eta=0.4)
        assert line["s"] == max(8, round(8 * np.sqrt(losses[0] / losses[-1])))
    assert line["s"] > 8


def test_the_round_loss_can_drive_the_rule() -> None:
    run = federation(rule=aq.AdaQuant(s0=8, interval=1.0, rounding="nearest"))
    lines = [run.play(eta=0.4) for _ in range(6)]
    assert run.states[1].rule["f0"] is None
    assert run.states[2].rule["f0"] == lines[0]["round_loss"]
    assert [line["s"] for line in lines[1:]] == [
        max(8, round(8 * np.sqrt(lines[0]["round_loss"] / line["round_loss"]))) for line in lines[:-1]
    ]
    assert lines[-1]["s"] > 8


def test_buffers_are_averaged_and_counted_but_not_quantized() -> None:
    run = federation(NAMED, rule=aq.Fixed(bits=8), downlink="exact")
    line = run.play()
    replies = [reply_of(run.clients[client], run.replies[client]) for client in range(3)]
    mean = sum(p * aq.decode_float32(reply.buffers) for p, reply in zip(P, replies, strict=True))
    np.testing.assert_allclose(run.server.weights["bn.running_mean"], mean, rtol=1e-5)
    assert np.abs(mean).min() > 0
    assert line["paper_bits"] == aq.paper_bits(54, 255, 2)  # buffers are not in the paper's count
    assert line["wire_bytes_up"] == sum(map(len, run.replies.values()))
    for client in run.clients:  # the next order brings them along
        opened = client.open(run.server.order(client.number, evaluate=True))
        assert {name: array.tobytes() for name, array in opened.items()} == {
            name: array.tobytes() for name, array in run.server.weights.items()
        }


def test_every_client_and_round_has_a_stream_of_its_own() -> None:
    run = federation()
    keys = []
    for _ in range(3):
        keys += [Order.unpack(order).key for order in run.server.open().values()]
        run.server.return_to(run.states[-1])
        run.play()
    assert len(set(keys)) == 9


def test_a_server_that_is_restored_in_mid_round_ends_it_alike() -> None:
    run = federation(min_clients=2)
    run.play()
    orders = run.server.open()
    trained = {number: run.clients[number].open(order) + 1 for number, order in orders.items()}
    replies = {number: run.clients[number].reply(weights, 0.5, 10) for number, weights in trained.items()}
    run.server.receive(0, replies[0])
    with pytest.raises(aq.Refused):
        run.server.receive(1, replies[1][:-1])
    run.server.absent(2, "cut off.")
    tree = run.server.state()
    ends = []
    for server in (run.server, aq.Server.restore(tree)):
        server.receive(1, replies[1])
        closed = server.close()
        ends.append((closed.facts, closed.weights.tobytes()))
    assert ends[0] == ends[1]
    assert ends[0][0]["missing"] == {2: "cut off."}


def test_a_server_says_in_which_order_it_is_to_be_called() -> None:
    server: Any = aq.Server(np.zeros(3, dtype=np.float32))
    for call in (lambda: server.close(), lambda: server.receive(0, b""), lambda: server.order(0, holds=None)):
        with pytest.raises(aq.EngineError, match="No round is open"):
            call()
    with pytest.raises(aq.EngineError, match="at least one client"):
        server.open([])
    with pytest.raises(aq.ConfigError, match="Name the clients"):
        server.open()
    server.open([0])
    with pytest.raises(aq.EngineError, match="Round 1 is open"):
        server.open([0])


def test_what_stops_a_round_leaves_the_state_before_it() -> None:
    run = federation()
    run.play()
    before = run.server.current
    run.server.open()
    with pytest.raises(aq.EngineError, match="0 of 3 clients"):
        run.server.close()
    run.server.return_to(before)
    run.play()
    assert [state.round for state in run.states] == [0, 1, 2]
    assert all(one.ledger.wire_bytes_up < other.ledger.wire_bytes_up for one, other in pairwise(run.states))
