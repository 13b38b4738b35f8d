"""What must hold whatever users and clients do: nothing is shared, forgotten, counted twice or believed blindly."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.step import ServerStep
from support.rounds import federation, reply_of
from support.scripted import Scripted

D = 40
SECRETS = {0: b"zero's own", 1: b"one's own"}


def vector(value: float = 0.0) -> np.ndarray:
    return np.full(D, value, dtype=np.float32)


def answer(end: aq.Client, order: bytes, step: float = 1.0, loss: float = 1.0) -> bytes:
    """The reply of a client whose training moves every weight by this step."""
    weights: Any = end.open(order)
    return end.reply(weights + np.float32(step), loss=loss)


def play(
    server: aq.Server, ends: dict[int, aq.Client], asked: list[int], round: int, said: float = 0.0, **more: Any
) -> aq.Server:
    for number, order in server.open(asked, eta=0.1, **more).items():
        weights: Any = ends[number].open(order)
        step = np.sin(np.arange(D, dtype=np.float32) * (number + 1 + round)) * np.float32(0.1)
        server.receive(number, ends[number].reply(weights + step, said or 2.0 / (round + 1), number + 1))
    server.close()
    return server


def ends_of(count: int = 3) -> dict[int, aq.Client]:
    return {number: aq.Client(number) for number in range(count)}


def through_json(tree: Any) -> Any:
    """A state as another process would read it: nothing is the same object any more."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return {"array": value.tolist(), "dtype": value.dtype.name}
        if isinstance(value, bytes):
            return {"hex": value.hex()}
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list | tuple) else value

    def back(value: dict[str, Any]) -> Any:
        if set(value) == {"array", "dtype"}:
            return np.array(value["array"], dtype=value["dtype"])
        return bytes.fromhex(value["hex"]) if set(value) == {"hex"} else value

    return json.loads(json.dumps(plain(tree)), object_hook=back)


# ------------------------------------------------------------------------------------------------- calling it


def test_a_server_says_in_which_order_it_is_to_be_called() -> None:
    server: Any = aq.Server(vector())
    for call in (lambda: server.close(), lambda: server.receive(0, b""), lambda: server.order(0, holds=None)):
        with pytest.raises(aq.EngineError, match="No round is open"):
            call()
    with pytest.raises(aq.ConfigError, match="Name the clients"):
        server.open()
    for clients in (["a"], [], [-1], [0.5]):
        with pytest.raises(aq.EngineError):
            server.open(clients)
    for wrong in ({"eta": "0.1"}, {"eta": math.nan}, {"eta": 0.0}, {"loss": "2"}):
        with pytest.raises(aq.EngineError):
            server.open([0], **wrong)
    assert set(server.open(np.array([0, 1]))) == {0, 1}, "what could not be opened is not open"
    json.dumps(server.state()["open"]["clients"])
    with pytest.raises(aq.EngineError, match="Round 1 is open"):
        server.open([0])


@pytest.mark.parametrize("rule", [aq.Auto(), aq.AdaQuant(s0=2, interval=4.0)])
def test_a_loss_that_was_not_asked_for_is_the_one_that_was_given_last(rule: aq.Rule) -> None:
    always, asked = (aq.Server(vector(), rule=rule, downlink="late", seed=1) for _ in range(2))
    one, other, last = ends_of(), ends_of(), 3.0
    for round in range(6):
        wanted = asked.wants_loss() or round == 0
        last = 3.0 / (1 + round) if wanted else last
        play(always, one, [0, 1, 2], round, loss=last)
        play(asked, other, [0, 1, 2], round, loss=last if wanted else None)
    np.testing.assert_array_equal(always.weights, asked.weights)
    assert always.current.rule == asked.current.rule


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loss": None}, "loss"),
        ({"examples": math.nan}, "examples"),
        ({"examples": 2**32}, "examples"),
        ({"trained": {"w": vector(), "n": np.array([300.7])}}, "type float64, expected int8"),
        ({"trained": {"w": vector() + 1j, "n": np.zeros(1, np.int8)}}, "complex"),
        ({"trained": {"w": np.array(["a"] * D), "n": np.zeros(1, np.int8)}}, "type"),
    ],
)
def test_a_reply_of_something_else_is_refused_with_a_sentence(changes: dict[str, Any], reason: str) -> None:
    server, end = aq.Server({"w": vector(), "n": np.zeros(1, np.int8)}), aq.Client(0)
    weights = end.open(server.open([0])[0])
    with pytest.raises(aq.AdaQuantError, match=reason):
        end.reply(**{"trained": weights, "loss": 1.0, **changes})


def test_weights_that_cannot_be_are_refused() -> None:
    for weights, words in ((vector(math.inf), "NaN"), ({0: vector()}, "named by text")):
        with pytest.raises(aq.ConfigError, match=words):
            aq.Server(weights)


def test_messages_may_be_any_bytes_and_nothing_else() -> None:
    server, end = aq.Server(vector()), aq.Client(0)
    end.open(memoryview(bytearray(server.open([0])[0])))
    reply = bytearray(end.reply(vector(1.0), loss=1.0))
    for wrong in (None, "text", 5):
        with pytest.raises(aq.Refused, match="not bytes"):
            server.receive(0, wrong)  # type: ignore[arg-type]
    server.receive(0, reply)
    reply[:] = bytes(len(reply))
    assert aq.Server.restore(server.state()).close().facts["clients"] == 1


def test_the_server_shares_no_memory_with_its_user() -> None:
    given = vector()
    server, end = aq.Server(given, rule="fp32"), aq.Client(0)
    given += 1
    tree = server.state()
    tree["trajectory"]["model"]["weights"] = "gone"
    np.testing.assert_array_equal(server.weights, vector())
    server.receive(0, answer(end, server.open([0])[0]))
    made = vector(2.0)
    server.close(weights=made)
    made *= 5
    np.testing.assert_array_equal(server.weights, vector(2.0))
    adopted = vector(3.0)
    server.adopt(adopted)
    adopted *= 5
    np.testing.assert_array_equal(server.weights, vector(3.0))


def test_adopted_weights_reach_the_clients_and_must_fit() -> None:
    server, client = aq.Server(vector(), downlink="exact"), aq.Client(0)
    server.receive(0, answer(client, server.open([0])[0]))
    server.close()
    state = server.current
    server.adopt(server.weights)
    assert server.current is state, "its own model changes nothing"
    server.adopt(vector(7.0))
    np.testing.assert_array_equal(client.open(server.open([0])[0]), vector(7.0))
    for wrong, words in ((np.zeros(4, np.float32), "expected"), (vector(math.nan), "NaN, or beyond float32")):
        with pytest.raises(aq.ConfigError, match=words):
            server.adopt(wrong)


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


# ---------------------------------------------------------------------------------------------------- its state


@pytest.mark.parametrize("rejected", [(), (1, 2), (3,)])
def test_restoring_before_any_round_changes_nothing_also_where_rounds_are_taken_back(rejected: tuple[int, ...]) -> None:
    def run(restored_before: int) -> tuple[np.ndarray, list[Any]]:
        server = aq.Server(vector(), rule=Scripted(rejected, levels=3), quantizer="nearest", downlink="late", undo=9.0)
        ends = ends_of()
        for round in range(6):
            if round == restored_before:
                server = aq.Server.restore(through_json(server.state()))
                ends = {number: aq.Client.restore(through_json(end.state())) for number, end in ends.items()}
            play(server, ends, [0, 2] if round in (2, 4) else [0, 1, 2], round, said=99.0 * (round == 4))
        kept: Any = server.weights
        return kept, [end.state()["remainder"]["value"] for end in ends.values()]

    model, remainders = run(-1)
    for round in range(6):
        same, others = run(round)
        np.testing.assert_array_equal(same, model)
        for one, other in zip(remainders, others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_server_that_is_restored_in_mid_round_ends_it_alike() -> None:
    run = federation(min_clients=2)
    run.play()
    orders = run.server.open()
    run.server.order(1, holds=None)  # counted
    trained = {number: run.clients[number].open(order) + 1 for number, order in orders.items()}
    replies = {number: run.clients[number].reply(weights, 0.5, 10) for number, weights in trained.items()}
    run.server.receive(0, replies[0])
    with pytest.raises(aq.Refused):
        run.server.receive(1, replies[1][:-1])
    run.server.absent(2, "cut off.")
    ends = []
    for server in (run.server, aq.Server.restore(through_json(run.server.state()))):
        server.receive(1, replies[1])
        closed = server.close()
        ends.append((closed.facts, closed.weights.tobytes()))
    assert ends[0] == ends[1]
    assert ends[0][0]["missing"] == {2: "cut off."}


class Unnamed(aq.AdaQuant):
    """A rule without a name of its own."""


class WithAttributes(aq.Rule):
    """No dataclass, so that nobody can tell its settings."""

    name = "with-attributes"

    def __init__(self, levels: int = 5) -> None:
        self.levels = levels

    def plan(self, state: dict[str, Any], seen: aq.Seen) -> tuple[dict[str, Any], aq.Plan]:
        return state, aq.Plan(levels=self.levels)


@pytest.mark.parametrize("rule", [Unnamed(s0=2), WithAttributes(9)], ids=lambda rule: type(rule).__name__)
def test_what_a_state_cannot_hold_has_to_be_given_back(rule: aq.Rule) -> None:
    server = aq.Server(vector(), rule=rule)
    with pytest.raises(aq.CheckpointError, match="Pass"):
        aq.Server.restore(server.state())
    assert aq.Server.restore(server.state(), rule=rule).open([0, 1]) == server.open([0, 1])
    with pytest.raises(aq.ConfigError, match="seed cannot be given"):
        aq.Server.restore(server.state(), seed=3)


def test_a_state_with_a_part_missing_is_no_state() -> None:
    server = aq.Server(vector())
    server.open([0])
    for place in (("settings",), ("trajectory",), ("log",), ("open", "missing")):
        tree = copy.deepcopy(server.state())
        del (tree[place[0]] if place[1:] else tree)[place[-1]]
        with pytest.raises(aq.CheckpointError):
            aq.Server.restore(tree)


# ----------------------------------------------------------------------------------------------- hostile clients


def test_a_negative_loss_is_refused_only_where_the_rule_takes_none() -> None:
    server, free = aq.Server(vector(), rule="adaquant", min_clients=1), aq.Server(vector(), rule="2bit")
    for one in (server, free):
        orders = one.open([0, 1])
        one.receive(0, answer(aq.Client(0), orders[0], loss=2.0))
        said = replace(Reply.unpack(answer(aq.Client(1), orders[1])), loss=-5.0).pack()
        if one is server:
            with pytest.raises(aq.Refused, match="Its loss is -5"):
                one.receive(1, said)
        else:
            one.receive(1, said)
    assert list(server.close().facts["missing"]) == [1]
    assert free.close().facts["round_loss"] == -1.5


def test_a_value_that_is_not_finite_never_gets_into_the_model() -> None:
    start = {"w": vector(), "running_var": np.zeros(3, np.float64)}
    server, end = aq.Server(start, rule="fp32", min_clients=1), aq.Client(0)
    weights: Any = end.open(server.open([0, 1])[0])
    for spoiled in ({"running_var": np.array([1.0, math.nan, 1.0])}, {"w": vector(3e38)}, {"w": vector(math.inf)}):
        assert Reply.unpack(end.reply({**weights, **spoiled}, loss=1.0)).diverged
    honest = reply_of(end, end.reply(weights, loss=1.0))
    hostile = {
        "NaN or infinite": replace(honest, others=np.array([1.0, math.inf, 1.0]).tobytes()),
        "could reach": replace(honest, frame=aq.encode_float32(vector(1e37))),
    }
    for words, reply in hostile.items():
        with pytest.raises(aq.Refused, match=words):
            server.receive(0, reply.pack())
    with pytest.raises(aq.ConfigError, match="NaN"):
        server.close(weights={**start, "w": vector(math.nan)})


@dataclass(frozen=True)
class Explodes(ServerStep):
    """A step with a fault."""

    name = "explodes"

    def apply(self, update: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return update * np.float32(np.inf), state


def test_a_step_that_is_not_finite_is_not_taken_and_the_sentence_names_the_step() -> None:
    server = aq.Server(vector(), step=Explodes())
    server.receive(7, answer(aq.Client(7), server.open([7])[7]))
    with pytest.raises(aq.EngineError, match=r"Explodes.apply \(test_server.py, line \d+\) returned NaN or infinity"):
        server.close()
    np.testing.assert_array_equal(server.weights, vector())


@pytest.mark.parametrize("quantizer", ["uniform", "lattice", "natural"])
def test_balanced_levels_are_held_to_what_an_update_can_ask_for(quantizer: str) -> None:
    most = 127 if quantizer == "natural" else 65535
    weights = {"a": np.zeros(5000, np.float32), "b": np.zeros(3, np.float32)}
    server = aq.Server(weights, rule=aq.Fixed(s=1.0), quantizer=quantizer, scope="balanced")
    end, rng = aq.Client(0), np.random.default_rng(0)
    given: Any = end.open(server.open([0])[0])
    trained = {name: array + rng.standard_normal(array.shape).astype("f4") for name, array in given.items()}
    honest = end.reply(trained, loss=1.0)
    flat = np.concatenate([trained["a"], trained["b"]])
    frame = aq.compress(flat, most, 1, segments=[5000, 3], quantizer=quantizer)
    with pytest.raises(aq.Refused, match="the round's plan says s from 1 to 9"):
        server.receive(0, replace(Reply.unpack(honest), frame=frame).pack())
    server.receive(0, honest)


@pytest.mark.parametrize("quantizer", ["rotated", "eden", "centroid"])
def test_the_blocks_of_a_rotation_are_those_of_the_plan(quantizer: str) -> None:
    server, end = aq.Server(np.zeros(1000, np.float32), rule=aq.Fixed(bits=2), quantizer=quantizer), aq.Client(0)
    weights: Any = end.open(server.open([0])[0])
    honest = reply_of(end, end.reply(weights + np.linspace(-1, 1, 1000, dtype=np.float32), loss=1.0))
    s = aq.decode(honest.frame).s
    other = aq.compress(np.ones(1000, np.float32), s, 1, segments=[500, 500], quantizer=quantizer)
    with pytest.raises(aq.Refused, match="segments"):
        server.receive(0, replace(honest, frame=other).pack())
    server.receive(0, honest.pack())


def test_a_reply_to_the_order_of_another_client_or_another_model_is_refused() -> None:
    """A server that is killed before it wrote a round down may play that round again with other replies."""
    server, ends = aq.Server(vector(), min_clients=1), ends_of(2)
    replies = {number: answer(ends[number], order) for number, order in server.open([0, 1]).items()}
    with pytest.raises(aq.Refused, match="another client"):
        server.receive(1, replies[0])
    server.receive(0, replies[0])
    written = through_json(server.state())
    server.receive(1, replies[1])
    server.close()
    late = {number: answer(ends[number], order, 2.0) for number, order in server.open([0, 1]).items()}
    server = aq.Server.restore(written)
    server.close()  # with client 0 alone: another model
    orders = server.open([0, 1])
    for number in (0, 1):
        with pytest.raises(aq.Refused, match="another model"):
            server.receive(number, late[number])
    with pytest.raises(aq.ModelNeeded):
        ends[0].open(orders[0])
    server.receive(0, answer(ends[0], server.order(0, holds=None)))


def test_a_client_with_a_secret_cannot_be_answered_for() -> None:
    server = aq.Server(vector(), secrets=SECRETS, min_clients=1)
    order = server.open([0, 1])[0]
    known, stranger = aq.Client(0, secret=SECRETS[0]), aq.Client(0, secret=SECRETS[1])
    for forged in (answer(stranger, order), answer(known, order)[:-16]):
        with pytest.raises(aq.Refused, match="not signed with this client's secret"):
            server.receive(0, forged)
    reply = known.reply(vector(1.0), loss=1.0)
    tree = through_json(server.state())
    assert "s own" not in json.dumps(str(tree))
    with pytest.raises(aq.CheckpointError, match=r"replies of client 0 were signed.*secrets="):
        aq.Server.restore(tree)
    server = aq.Server.restore(tree, secrets=SECRETS)
    server.receive(0, reply)
    plain = aq.Server(vector(), min_clients=1)
    plain.receive(0, answer(aq.Client(0), plain.open([0, 1])[0]))
    assert server.close().model.weights.tobytes() == plain.close().model.weights.tobytes()
    server.open([0, 1])
    with pytest.raises(aq.Refused, match="answers round 0"):
        server.receive(0, reply)  # played again


def test_a_limit_by_the_median_refuses_the_same_clients_however_often_it_is_applied() -> None:
    def asked() -> aq.Server:
        server = aq.Server(vector(), rule=aq.FullPrecision(), max_update_norm="10x", min_clients=1)
        for number, order in server.open(range(5)).items():
            server.receive(number, answer(aq.Client(number), order, [1, 1, 100, 900, 5000][number]))
        return server

    once, often = asked(), asked()
    often.heard()
    often = aq.Server.restore(through_json(often.state()))
    often.heard()
    assert set(once.close().facts["missing"]) == set(often.close().facts["missing"]) == {4}


def test_a_first_round_whose_clients_all_say_a_loss_of_0_does_not_stop_the_run() -> None:
    server, ends = aq.Server(vector(), rule="adaquant", min_clients=1), ends_of()
    for said in (0.0, 2.0, 2.0):
        for number, order in server.open([0, 1, 2]).items():
            server.receive(number, answer(ends[number], order, loss=said))
        server.close()
    assert server.open([0])
    assert server.current.rule["f0"] == 2.0


# ------------------------------------------------------------------------------ what the carrier says of clients


def test_an_order_starts_from_what_the_carrier_says_the_client_holds() -> None:
    server, client = aq.Server(np.zeros(4000, np.float32), rule="adaquant"), aq.Client(0)
    server.receive(0, answer(client, server.open([0])[0]))
    server.close()
    earlier = aq.Client.restore(client.state())  # holds the model of the first round
    server.receive(0, answer(client, server.open([0])[0]))
    server.close()
    server.forget([0])
    orders = server.open([0])
    whole, steps, named = (server.order(0, holds=held) for held in (None, earlier.holds, server.digest))
    assert len(whole) > 16_000 > 1000 > len(steps) > len(named)
    assert orders[0] == whole == server.order(0, holds=b"x" * 16)  # nothing is known of the client, or of the model
    np.testing.assert_array_equal(earlier.open(steps), server.weights)
    np.testing.assert_array_equal(earlier.open(named), server.weights)


def test_bytes_down_are_those_of_the_orders_and_of_a_whole_model_sent_again() -> None:
    server, client = aq.Server(np.zeros(4000, np.float32), rule="adaquant"), aq.Client(0)
    server.receive(0, answer(client, server.open([0])[0]))
    server.close()
    before = server.current.ledger.wire_bytes_down
    orders = server.open([0])
    server.order(0, holds=server.digest)
    server.order(0, evaluate=True)
    again = server.order(0, holds=None)
    fresh = aq.Client(0)
    with pytest.raises(aq.ModelNeeded, match="has no model"):
        fresh.open(orders[0])
    server.receive(0, answer(fresh, again))
    assert server.close().facts["wire_bytes_down"] - before == len(orders[0]) + len(again)


def test_an_order_to_evaluate_needs_no_round_and_no_client_of_it() -> None:
    server, client = aq.Server(np.ones(5, np.float32)), aq.Client(7)
    np.testing.assert_array_equal(client.open(server.order(7, evaluate=True)), np.ones(5))
    with pytest.raises(aq.EngineError, match="nothing to reply"):
        client.reply(np.ones(5, np.float32), loss=1.0)
    server.open([0])
    with pytest.raises(aq.EngineError, match="Client 7 was not asked"):
        server.order(7)


def test_orders_share_the_models_bytes_until_they_are_read() -> None:
    server = aq.Server(np.zeros(1_000_000, np.float32))
    assert len(server.open(range(50))) == 50
    assert len(server._parcels) == 1


def test_a_cohort_is_the_servers_and_clients_are_its_numbers() -> None:
    assert set(aq.Server(vector(), cohort=Cohort((1, 2))).open([1])) == {1}


@pytest.mark.parametrize(
    "changes", [{"s": 0.0}, {"s": 5e-324, "target": "resolution"}, {"s": 1e300}, {"eta": -0.1}], ids=str
)
def test_an_order_that_makes_no_sense_is_refused_by_the_client(changes: dict[str, Any]) -> None:
    server, end = aq.Server(vector()), aq.Client(0)
    order = replace(Order.unpack(server.open([0])[0]), **changes)
    with pytest.raises(aq.Refused, match="number of levels"):
        end.open(order.pack())


def test_a_rule_sees_how_many_of_the_clients_are_expected() -> None:
    seen: list[aq.Seen] = []

    class Watching(Scripted):
        def plan(self, state: dict[str, int], seen_now: aq.Seen) -> tuple[dict[str, int], aq.Plan]:
            seen.append(seen_now)
            return super().plan(state, seen_now)

    server = aq.Server(vector(), rule=Watching())
    for wrong in (0, 5):
        with pytest.raises(aq.EngineError, match="expected = "):
            server.open(range(4), expected=wrong)
    server.open(range(4), expected=2)
    assert (seen[-1].participation, seen[-1].weights_squared) == (0.5, pytest.approx(0.5))
