"""What must hold whatever users and clients do: nothing is shared, forgotten, counted twice or believed blindly."""

from __future__ import annotations

import copy
import json
import math
import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.arrays import Layout
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.step import ServerStep
from support import quadratic
from support.rounds import reply_of
from support.scripted import Scripted

D = 40


def vector(value: float = 0.0) -> np.ndarray:
    return np.full(D, value, dtype=np.float32)


def play(server: aq.Server, ends: dict[int, aq.Client], asked: list[int], round: int, **more: Any) -> aq.Server:
    for number, order in server.open(asked, eta=0.1, **more).items():
        weights: Any = ends[number].open(order)
        step = np.sin(np.arange(D, dtype=np.float32) * (number + 1 + round)) * np.float32(0.1)
        server.receive(number, ends[number].reply(weights + step, loss=2.0 / (round + 1), examples=number + 1))
    server.close()
    return server


def answer(end: aq.Client, order: bytes, step: float = 1.0, loss: float = 1.0) -> bytes:
    """The reply of a client whose training moves every weight by this step."""
    weights: Any = end.open(order)
    return end.reply(weights + np.float32(step), loss=loss)


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


@pytest.mark.parametrize("said", [(0, 0, 0, 0, 2, 2), (0, 2, 0, 2, 2, 0), (1, 0, 1, 2, 0, 0), (0, 0, 2, 0, 1, 2)])
@pytest.mark.parametrize("away", [(), (3, 4), (1, 2, 5)])
def test_restoring_before_any_round_changes_nothing_also_where_rounds_are_taken_back(
    said: tuple[int, ...], away: tuple[int, ...]
) -> None:
    def run(restored_before: int) -> tuple[np.ndarray, list[Any]]:
        server = aq.Server(vector(), rule=Scripted(said, levels=3), quantizer="nearest", downlink="late", seed=3)
        ends = ends_of()
        for round in range(8):
            if round == restored_before:
                server = aq.Server.restore(through_json(server.state()))
                ends = {number: aq.Client.restore(through_json(end.state())) for number, end in ends.items()}
            play(server, ends, [0, 2] if round in away else [0, 1, 2], round)
        kept: Any = server.weights
        return kept, [end.state()["remainder"]["value"] for end in ends.values()]

    model, remainders = run(-1)
    for round in range(8):
        same, others = run(round)
        np.testing.assert_array_equal(same, model)
        for one, other in zip(remainders, others, strict=True):
            np.testing.assert_array_equal(one, other)


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


def test_a_round_that_is_asked_for_again_is_left_out_once() -> None:
    server, end = aq.Server(vector(), rule=aq.Fixed(bits=1), quantizer="nearest"), aq.Client(0)
    weights: Any = end.open(server.open([0])[0])
    trained = weights + np.linspace(-1, 1, D, dtype=np.float32)
    first = end.reply(trained, loss=1.0)
    assert end.reply(trained, loss=1.0) == first
    end.open(server.order(0, holds=None))
    assert end.reply(trained, loss=1.0) == first


def test_the_server_shares_no_memory_with_its_user() -> None:
    given = vector()
    server = aq.Server(given, rule="fp32")
    given += 1
    np.testing.assert_array_equal(server.weights, vector())
    tree = server.state()
    tree["trajectory"]["model"]["weights"] = "gone"
    np.testing.assert_array_equal(server.weights, vector())
    play(server, ends_of(), [0, 1, 2], 0)
    server.open([0])
    end = aq.Client(0)
    server.receive(0, end.reply(end.open(server.order(0, holds=None)), loss=1.0))
    made = vector(2.0)
    server.close(weights=made)
    made *= 5
    np.testing.assert_array_equal(server.weights, vector(2.0))
    state = end.state()
    state["held"]["model"]["weights"] = "gone"
    assert end.state()["held"]["model"]["weights"] is not state["held"]["model"]["weights"]


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (np.int64, (2**53 + 1,) * 3, 2**53 + 1),
        (np.uint64, (2**64 - 1,) * 3, 2**64 - 1),
        (np.int64, (2**53 - 1, 2**53 - 3, 2**53 - 5), 2**53 - 3),
        (np.uint64, (2**64 - 1, 2**64 - 1, 2**64 - 4097), 2**64 - 2048),  # beyond 2^53 as float64 rounds it
        (np.int8, (1, 2, 9), 4),
    ],
)
def test_integers_are_averaged_and_equal_ones_stay(dtype: type, values: tuple[int, ...], expected: int) -> None:
    server = aq.Server({"w": vector(), "n": np.array([0], dtype=dtype)})
    for number, order in server.open(range(3)).items():
        end = aq.Client(number)
        weights: Any = end.open(order)
        server.receive(number, end.reply({**weights, "n": np.array([values[number]], dtype=dtype)}, loss=1.0))
    after: Any = server.close().weights
    assert after["n"].tolist() == [expected]
    assert after["n"].dtype == dtype


def test_the_bytes_of_an_open_round_survive_a_restart() -> None:
    server, end = aq.Server(vector()), aq.Client(0)
    server.open([0])
    server.order(0, holds=None)
    again = aq.Server.restore(through_json(server.state()))
    end.open(server.order(0, holds=None))
    again.order(0, holds=None)
    reply = end.reply(vector(1.0), loss=1.0)
    server.receive(0, reply)
    again.receive(0, reply)
    assert server.close().facts == again.close().facts


class Unnamed(aq.AdaQuant):
    """A rule without a name of its own."""


class WithAttributes(aq.Rule):
    """No dataclass, so that nobody can tell its settings."""

    name = "with-attributes"

    def __init__(self, levels: int = 5) -> None:
        self.levels = levels

    def plan(self, state: dict[str, Any], seen: aq.Seen) -> tuple[dict[str, Any], aq.Plan]:
        return state, aq.Plan(levels=self.levels)


@dataclass(frozen=True)
class Half(ServerStep):
    """Half of the sum, without a name."""

    def apply(self, update: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return update / 2, state


@pytest.mark.parametrize(
    "settings",
    [{"rule": Unnamed(s0=2)}, {"rule": WithAttributes(9)}, {"step": Half()}],
    ids=lambda settings: next(iter(settings)),
)
def test_what_a_state_cannot_hold_has_to_be_given_back(settings: dict[str, Any]) -> None:
    server = aq.Server(vector(), **settings)
    with pytest.raises(aq.CheckpointError, match="Pass"):
        aq.Server.restore(server.state())
    restored = aq.Server.restore(server.state(), **settings)
    assert restored.open([0, 1]) == server.open([0, 1])


def test_an_unknown_object_for_restoring_is_refused() -> None:
    with pytest.raises(aq.ConfigError, match="seed cannot be given"):
        aq.Server.restore(aq.Server(vector()).state(), seed=3)


@pytest.mark.parametrize("loss", [-1e6, -1e-3])
def test_a_negative_loss_is_refused_where_the_rule_takes_none(loss: float) -> None:
    server, ends = aq.Server(vector(), rule="adaquant", min_clients=1), ends_of()
    for _ in range(3):
        for number, order in server.open([0, 1, 2]).items():
            reply = answer(ends[number], order, loss=2.0)
            if number == 1:
                reply = replace(Reply.unpack(reply), loss=loss).pack()
                with pytest.raises(aq.Refused, match="Its loss is"):
                    server.receive(1, reply)
            else:
                server.receive(number, reply)
        assert list(server.close().facts["missing"]) == [1]
        assert server.current.loss == 2.0


def test_a_negative_loss_is_fine_where_no_rule_looks_at_it() -> None:
    server, ends = aq.Server(vector(), rule=aq.Fixed(bits=2), downlink="late"), ends_of()
    for _ in range(3):
        for number, order in server.open([0, 1, 2]).items():
            server.receive(number, answer(ends[number], order, loss=-5.0))
        assert server.close().facts["round_loss"] == -5.0


def test_a_value_that_is_not_finite_never_gets_into_the_model() -> None:
    start = {"w": vector(), "running_var": np.zeros(3, np.float64)}
    server = aq.Server(start, min_clients=1)
    orders = server.open([0, 1])
    end = aq.Client(0)
    weights: Any = end.open(orders[0])
    reply = Reply.unpack(end.reply({**weights, "running_var": np.array([1.0, math.nan, 1.0])}, loss=1.0))
    assert reply.diverged
    honest = reply_of(end, end.reply(weights, loss=1.0))
    with pytest.raises(aq.Refused, match="NaN or infinite"):
        server.receive(0, replace(honest, others=np.array([1.0, math.inf, 1.0]).tobytes()).pack())
    with pytest.raises(aq.ConfigError, match="NaN"):
        server.close(weights={**start, "w": vector(math.nan)})
    with pytest.raises(aq.ConfigError, match="NaN"):
        aq.Server(vector(math.inf))


def test_updates_that_are_finite_but_enormous_are_refused_before_the_sum() -> None:
    server = aq.Server(vector(), rule=aq.FullPrecision(), min_clients=1)
    for number, order in server.open([0, 1]).items():
        end = aq.Client(number)
        weights: Any = end.open(order)
        assert Reply.unpack(end.reply(weights + np.float32(3e38), loss=1.0)).diverged
        honest = reply_of(end, end.reply(weights + 1, loss=1.0))
        with pytest.raises(aq.Refused, match="could reach"):
            server.receive(number, replace(honest, frame=aq.encode_float32(vector(1e37))).pack())
        server.receive(number, honest.pack())
    np.testing.assert_array_equal(server.close().weights, vector(1.0))


@dataclass(frozen=True)
class Explodes(ServerStep):
    """A step with a fault."""

    name = "explodes"

    def apply(self, update: Any, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return update * np.float32(np.inf), state


def test_a_step_that_is_not_finite_is_not_taken_and_the_sentence_names_the_step() -> None:
    server = aq.Server(vector(), step=Explodes())
    server.receive(7, answer(aq.Client(7), server.open([7])[7]))
    with pytest.raises(aq.EngineError, match=r"step 'explodes': apply \(test_robustness.py, line \d+\) returned NaN"):
        server.close()
    np.testing.assert_array_equal(server.weights, vector())


@pytest.mark.parametrize("quantizer", ["uniform", "lattice", "natural"])
def test_balanced_levels_are_held_to_what_an_update_can_ask_for(quantizer: str) -> None:
    most = 127 if quantizer == "natural" else 65535
    weights = {"a": np.zeros(5000, np.float32), "b": np.zeros(3, np.float32)}
    server = aq.Server(weights, rule=aq.Fixed(s=1.0), quantizer=quantizer, scope="balanced")
    order, end = server.open([0])[0], aq.Client(0)
    given: Any = end.open(order)
    rng = np.random.default_rng(0)
    trained = {name: array + rng.standard_normal(array.shape).astype("f4") for name, array in given.items()}
    honest = end.reply(trained, loss=1.0)
    flat = np.concatenate([trained["a"], trained["b"]])
    frame = aq.compress(flat, most, 1, segments=[5000, 3], quantizer=quantizer)
    with pytest.raises(aq.Refused, match="the round's plan says s from 1 to 9"):
        server.receive(0, replace(Reply.unpack(honest), frame=frame).pack())
    server.receive(0, honest)


@pytest.mark.parametrize("quantizer", ["rotated", "eden", "centroid"])
def test_the_blocks_of_a_rotation_are_those_of_the_plan(quantizer: str) -> None:
    server = aq.Server(np.zeros(1000, np.float32), rule=aq.Fixed(bits=2), quantizer=quantizer)
    end = aq.Client(0)
    weights: Any = end.open(server.open([0])[0])
    honest = reply_of(end, end.reply(weights + np.linspace(-1, 1, 1000, dtype=np.float32), loss=1.0))
    s = aq.decode(honest.frame).s
    other = aq.compress(np.ones(1000, np.float32), s, 1, segments=[500, 500], quantizer=quantizer)
    with pytest.raises(aq.Refused, match="segments"):
        server.receive(0, replace(honest, frame=other).pack())
    server.receive(0, honest.pack())


def test_a_reply_that_another_client_made_is_refused() -> None:
    server, ends = aq.Server(vector(), min_clients=1), ends_of()
    orders = server.open([0, 1])
    for number in (0, 1):
        ends[number].open(orders[number])
    reply = ends[0].reply(vector(1.0), loss=1.0)
    with pytest.raises(aq.Refused, match="another client"):
        server.receive(1, reply)
    server.receive(0, reply)


def test_a_reply_that_was_trained_from_another_model_is_refused() -> None:
    """A server that is killed before it wrote a round down may play that round again with other replies."""
    server, ends = aq.Server(vector(), min_clients=1), ends_of(2)
    replies = {number: answer(ends[number], order, loss=2.0) for number, order in server.open([0, 1]).items()}
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
            ends[number].open(orders[number]) if number == 0 else aq.Client(1).open(orders[0])
        server.receive(number, answer(ends[number], server.order(number, holds=None)))
    assert server.close().facts["clients"] == 2


def test_a_client_with_a_secret_cannot_be_answered_for() -> None:
    secrets = {0: b"zero's own", 1: b"one's own"}
    server = aq.Server(vector(), secrets=secrets, min_clients=1)
    orders = server.open([0, 1])
    known, stranger = aq.Client(0, secret=secrets[0]), aq.Client(0, secret=secrets[1])
    for end in (known, stranger):
        end.open(orders[0])
    for forged in (stranger.reply(vector(9.0), loss=1.0), known.reply(vector(1.0), loss=1.0)[:-16]):
        with pytest.raises(aq.Refused, match="not signed with this client's secret"):
            server.receive(0, forged)
    reply = known.reply(vector(1.0), loss=1.0)
    server = aq.Server.restore(through_json(server.state()), secrets=secrets)
    server.receive(0, reply)
    server.close()
    server.open([0, 1])
    with pytest.raises(aq.Refused, match="answers round 0"):
        server.receive(0, reply)  # played again
    assert "s own" not in json.dumps(str(server.state()))


def test_clients_are_whole_numbers_of_any_type() -> None:
    server = aq.Server(vector())
    assert set(server.open(np.array([0, 1]))) == {0, 1}  # type: ignore[arg-type]
    json.dumps(server.state()["open"]["clients"])
    for wrong in (["a"], [], [-1], [0.5]):
        with pytest.raises(aq.EngineError):
            aq.Server(vector()).open(wrong)


@pytest.mark.parametrize("changes", [{"eta": "0.1"}, {"eta": math.nan}, {"eta": 0.0}, {"loss": "2"}])
def test_a_round_that_cannot_be_opened_is_not_open(changes: dict[str, Any]) -> None:
    server = aq.Server(vector())
    with pytest.raises(aq.EngineError):
        server.open([0], **changes)
    assert server.open([0])


def test_a_rule_that_rejects_for_ever_does_not_overfill_an_order() -> None:
    rule, end = Scripted((aq.Verdict.REJECT,) * 600, levels=3), aq.Client(0)
    server = aq.Server(vector(), rule=rule, quantizer="nearest", min_clients=1)
    for _ in range(300):
        server.receive(0, answer(end, server.open([0, 1])[0]))
        server.close()
    assert len(server.current.asked[1]) <= 255


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


def test_messages_may_be_any_bytes_and_nothing_else() -> None:
    server, end = aq.Server(vector()), aq.Client(0)
    order = bytearray(server.open([0])[0])
    end.open(memoryview(order))
    reply = bytearray(end.reply(vector(1.0), loss=1.0))
    for wrong in (None, "text", 5):
        with pytest.raises(aq.Refused, match="not bytes"):
            server.receive(0, wrong)  # type: ignore[arg-type]
    server.receive(0, reply)
    reply[:] = bytes(len(reply))
    assert aq.Server.restore(server.state()).close().facts["clients"] == 1


@pytest.mark.parametrize("cohort", [{"sampling": "unifrom"}, {"per_round": 3}, {"examples": (1, 0)}, {"least": -1}])
def test_a_cohort_that_is_none_is_refused(cohort: dict[str, Any]) -> None:
    with pytest.raises(aq.ConfigError):
        Cohort(**{"examples": (1, 2), **cohort})


def test_a_state_with_a_part_missing_is_no_state() -> None:
    server = aq.Server(vector())
    server.open([0])
    for place in (("settings",), ("trajectory",), ("log",), ("open", "missing")):
        tree = copy.deepcopy(server.state())
        del (tree[place[0]] if place[1:] else tree)[place[-1]]
        with pytest.raises(aq.CheckpointError):
            aq.Server.restore(tree)


def test_a_layout_with_an_unknown_type_is_refused() -> None:
    for name in ("float8", "object", "complex64", "U3", "datetime64[s]"):
        with pytest.raises(aq.FrameError):
            Layout.from_json(json.dumps([False, [["w", name, [3], "q"]]]))
    more_than_an_integer_counts = [["", "float32", [2**32, 2**32], "q"], ["b", "float32", [33], "q"]]
    with pytest.raises(aq.FrameError, match=r"more than 2\^32 elements"):
        Layout.from_json(json.dumps([False, more_than_an_integer_counts]))


@pytest.mark.parametrize(
    "changes",
    [
        {"s": 0.0},
        {"s": -1.0},
        {"s": 1e300},
        {"eta": -0.1},
    ],
    ids=str,
)
def test_an_order_that_makes_no_sense_is_refused_by_the_client(changes: dict[str, Any]) -> None:
    server, end = aq.Server(vector()), aq.Client(0)
    order = replace(Order.unpack(server.open([0])[0]), **changes)
    with pytest.raises(aq.AdaQuantError):
        end.reply(end.open(order.pack()), loss=1.0)


@pytest.mark.parametrize("factor", [math.nan, math.inf, 0.0, -1.0])
def test_a_parcel_with_a_factor_that_is_none_is_refused(factor: float) -> None:
    server, end = aq.Server(np.zeros(400, np.float32)), aq.Client(0)
    server.receive(0, answer(end, server.open([0])[0]))
    server.close()
    order = Order.unpack(server.open([0])[0])
    parcel = bytearray(order.parcel)
    assert parcel[4] == 1  # steps
    struct.pack_into("<f", parcel, 36 + 4, factor)
    with pytest.raises(aq.Refused, match="factor"):
        end.open(replace(order, parcel=bytes(parcel)).pack())


def test_names_of_arrays_are_text() -> None:
    with pytest.raises(aq.ConfigError, match="named by text"):
        aq.Server({0: vector()})  # type: ignore[dict-item]


def test_a_client_that_the_cohort_does_not_know_cannot_be_asked() -> None:
    server = aq.Server(vector(), cohort=Cohort((1, 2)))
    with pytest.raises(aq.EngineError, match="Client 7 is not in the cohort"):
        server.open([7])
    assert set(server.open([1])) == {1}


def test_adopted_weights_are_copied_and_checked() -> None:
    server, weights = aq.Server(vector()), vector() + 1
    server.adopt(weights)
    weights[:] = 5
    np.testing.assert_array_equal(server.weights, vector() + 1)
    for wrong in (np.nan, np.inf):
        with pytest.raises(aq.ConfigError, match="NaN, or beyond float32"):
            server.adopt(np.full_like(weights, wrong))
    np.testing.assert_array_equal(server.weights, vector() + 1)


def test_a_state_with_signed_replies_is_not_restored_without_the_secrets() -> None:
    server = aq.Server(vector(), secrets={3: b"k" * 16})
    end = aq.Client(3, secret=b"k" * 16)
    server.receive(3, end.reply(end.open(server.open([3])[3]), 1.0))
    with pytest.raises(aq.CheckpointError, match=r"replies of client 3 were signed.*secrets="):
        aq.Server.restore(server.state())
    assert aq.Server.restore(server.state(), secrets={3: b"k" * 16}).close().facts["clients"] == 1


def test_quadratic_runs_end_in_the_same_model_with_and_without_secrets() -> None:
    plain, signed = aq.Server(quadratic.start(), seed=2), aq.Server(quadratic.start(), seed=2, secrets={0: b"x" * 16})
    quadratic.play(plain, {0: aq.Client(0)}, 3)
    quadratic.play(signed, {0: aq.Client(0, secret=b"x" * 16)}, 3)
    for one, other in zip(plain.weights.values(), signed.weights.values(), strict=True):  # type: ignore[union-attr]
        np.testing.assert_array_equal(one, other)


def test_a_first_round_whose_clients_all_say_a_loss_of_0_does_not_stop_the_run() -> None:
    server, ends = aq.Server(vector(), rule="adaquant", min_clients=1), ends_of()
    for said in (0.0, 2.0, 2.0):
        for number, order in server.open([0, 1, 2]).items():
            server.receive(number, answer(ends[number], order, loss=said))
        server.close()
    assert server.open([0])
    assert server.current.rule["f0"] == 2.0


@pytest.mark.parametrize("secret", [b"", "text", None])
def test_a_secret_that_is_none_is_refused(secret: Any) -> None:
    with pytest.raises(aq.ConfigError, match="The secret of client 3"):
        aq.Server(vector(), secrets={3: secret})


def test_more_examples_than_the_format_allows_are_refused() -> None:
    server, end = aq.Server(vector()), aq.Client(0)
    reply = reply_of(end, end.reply(end.open(server.open([0])[0]), loss=1.0))
    with pytest.raises(aq.Refused, match=r"34,359,738,367 examples; expected 1 to 2\^32 - 1"):
        server.receive(0, replace(reply, examples=2**35 - 1).pack())
