"""The client's line: what the mod sends, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import adaquantfl as aq
from adaquantfl.errors import EngineError
from adaquantfl.flower import quantize_mod
from adaquantfl.flower.records import KEY, NOTE, ORDER, REPLY
from adaquantfl.protocol.messages import Reply
from support.fake_flower import Arrays, Client, FakeGrid, arrays_of, carry, context, record, train_message
from support.paper_strategy import paper_strategy

FINE = aq.Fixed(bits=16)


class Round:
    """The message of a round for the first of two nodes, and what the server makes of its reply."""

    def __init__(self, arrays: Arrays | ArrayRecord, **settings: Any) -> None:
        self.strategy = paper_strategy(FedAvg(), **{"rule": FINE, "seed": 1, **settings})
        model = arrays if isinstance(arrays, ArrayRecord) else record(arrays)
        grid = FakeGrid([Client(lambda _, array: array)] * 2)
        messages = self.strategy.configure_train(1, model, ConfigRecord(), grid)
        (self.message,) = [carry(m) for m in messages if m.metadata.dst_node_id == 1000]

    def reply_of(self, client: Client | ClientApp, node: Context | None = None) -> Message:
        app = client.app if isinstance(client, Client) else client
        reply = carry(app(carry(self.message), node or context(node=1000, partition=0)))
        reply.metadata.__dict__["_src_node_id"] = 1000
        return reply

    def opened(self, reply: Message) -> Arrays:
        """The arrays that the wrapped strategy gets."""
        arrays, _ = self.strategy.aggregate_train(1, [reply])
        assert not self.strategy.refusals
        assert arrays is not None
        return {name: array.numpy() for name, array in arrays.items()}


def update_in(reply: Message) -> Reply:
    data = reply.content.config_records["arrays"][REPLY]
    assert isinstance(data, bytes)
    return Reply.unpack(data)


def is_plain(reply: Message) -> bool:
    return "arrays" in reply.content.array_records


def plus(amount: float) -> Client:
    return Client(lambda _, array: array + array.dtype.type(amount))


def test_the_reply_is_one_small_update(rng: np.random.Generator) -> None:
    model = {"a": rng.standard_normal((100, 100)).astype("f4"), "b": rng.standard_normal(100).astype("f4")}
    client = Client(lambda _, array: array + rng.standard_normal(array.shape).astype("f4"), examples=7, loss=0.5)
    reply = Round(model, rule="adaquant").reply_of(client)
    assert list(reply.content) == ["arrays", "metrics"]
    assert reply.content.config_records["arrays"].count_bytes() < 0.02 * 4 * 10_100  # float32 took 4 bytes an element
    assert reply.content["metrics"]["train_loss"] == 0.5
    assert (update_in(reply).loss, update_in(reply).examples) == (0.5, 7)


@pytest.mark.usefixtures("whole_frames")
def test_the_frame_is_the_one_that_compress_makes(rng: np.random.Generator) -> None:
    model = {"a": np.zeros((30, 4), "f4"), "b": np.zeros(50, "f4")}
    change = {name: rng.standard_normal(array.shape).astype("f4") for name, array in model.items()}
    reply = Round(model).reply_of(Client(lambda name, _: change[name]), context(node=9, partition=5))
    flat = np.concatenate([array.ravel() for array in change.values()])
    assert update_in(reply).frame == aq.compress(flat, 2**16 - 1, aq.stream_key(1, 0, 5), segments=[120, 50])


@pytest.mark.parametrize(
    "records",
    [
        {"arrays": {"w": np.ones(7, "f4")}},
        {"arrays": {}},
        {"arrays": {"w": np.ones(3, "f4")}, "control": {"c": np.ones(3, "f4")}},
    ],
)
def test_arrays_that_are_not_those_of_the_model_go_as_they_are(records: dict[str, Arrays]) -> None:
    app, content = ClientApp(mods=[quantize_mod]), {name: record(arrays) for name, arrays in records.items()}
    app.train()(lambda message, _: Message(RecordDict(dict(content)), reply_to=message))
    reply = Round({"w": np.ones(3, "f4")}).reply_of(app)
    assert reply.content.array_records == content


@pytest.mark.parametrize(
    "odd", [Array(np.array([1, 2], "u4").view("V4")), Array("x", (1,), "pickle", b"abc"), Array(np.ones(2, "c8"))]
)
def test_a_model_with_arrays_of_no_known_type_is_left_alone(odd: Array) -> None:
    """Other serializations are none of our business."""
    this = Round(ArrayRecord({"w": Array(np.ones(3, "f4")), "odd": odd}))
    assert KEY not in this.message.content
    app = ClientApp(mods=[quantize_mod])
    app.train()(lambda message, _: Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message))
    assert this.reply_of(app).content["arrays"]["odd"].data == odd.data


@pytest.mark.usefixtures("whole_frames")
def test_a_handler_may_empty_the_record_it_was_given() -> None:
    model = {"w": np.ones(5, "f4")}
    app = ClientApp(mods=[quantize_mod])

    @app.train()
    def train(message: Message, node: Context) -> Message:
        (w,) = message.content["arrays"].to_numpy_ndarrays(keep_input=False)
        return Message(RecordDict({"arrays": record({"w": w + 1})}), reply_to=message)

    reply = Round(model).reply_of(app)
    np.testing.assert_allclose(aq.decode(update_in(reply).frame).dequantize(), 1.0, rtol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_reported_and_refused_with_advice(bad: float) -> None:
    this = Round({"w": np.ones(5, "f4")})
    reply = this.reply_of(Client(lambda _, array: array * np.float32(bad)))
    assert update_in(reply).diverged
    with pytest.raises(EngineError, match=r"none of the 2 clients can be used.*diverged: lower the learning rate"):
        this.strategy.aggregate_train(1, [reply])
    assert list(this.strategy.refusals) == [1000]


def test_other_messages_are_left_alone() -> None:
    model = {"w": np.ones(5, "f4")}
    without_order = carry(plus(1).app(carry(train_message(model)), context(1)))
    np.testing.assert_array_equal(arrays_of(without_order)["w"], np.full(5, 2, "f4"))
    evaluate = Message(Round(model).message.content, dst_node_id=7, message_type="evaluate")
    assert plus(1).app(evaluate, context(1)).content["metrics"]["seen"] == 1


@pytest.mark.parametrize("change", [lambda order: b"AQO9" + order[4:], lambda order: order[:-1], lambda order: "text"])
def test_an_order_of_another_version_is_trained_without_and_says_so(change: Any) -> None:
    this = Round({"w": np.ones(3, "f4")})
    plan = this.message.content.config_records[KEY]
    plan[ORDER] = change(plan[ORDER])
    reply = this.reply_of(plus(1))
    assert is_plain(reply)
    assert "Install the same version of adaquantfl" in str(reply.content.config_records[KEY][NOTE])
    np.testing.assert_array_equal(this.opened(reply)["w"], np.full(3, 2, "f4"))


def test_a_model_that_another_mod_changed_is_trained_without_the_order() -> None:
    this = Round({"w": np.ones(3, "f4")})
    this.message.content["arrays"] = record({"w": np.ones(3, "f4") + 1})
    reply = this.reply_of(plus(1))
    assert "has another digest here than at the server" in str(reply.content.config_records[KEY][NOTE])
    np.testing.assert_array_equal(this.opened(reply)["w"], np.full(3, 3, "f4"))


@pytest.mark.usefixtures("whole_frames")
def test_randomness_comes_from_the_partition_and_otherwise_from_the_order(rng: np.random.Generator) -> None:
    update = rng.standard_normal(1000).astype("f4")
    this = Round({"w": np.zeros(1000, "f4")}, rule="adaquant")

    def frame(node: Context) -> bytes:
        return update_in(this.reply_of(Client(lambda *_: update), node)).frame

    assert frame(context(1, 4)) == frame(context(2, 4)) == frame(context(2, "4"))
    assert frame(context(1, 4)) != frame(context(1, 5))
    assert frame(context(4)) == frame(context(4, "north")) == frame(context(5))
    assert frame(context(4)) != frame(context(1, 4))


def test_nothing_is_kept_in_the_context_unless_it_is_needed() -> None:
    for settings, kept in (
        ({"downlink": "model"}, False),
        ({}, True),
        ({"downlink": "model", "quantizer": "nearest"}, True),
    ):
        node = context(1, 0)
        Round({"w": np.ones(5, "f4")}, **settings).reply_of(plus(1), node)
        assert (KEY in node.state) == kept, settings


def test_with_secagg_the_log_says_that_nothing_is_quantized(log: pytest.LogCaptureFixture) -> None:
    """Defect 15: nothing was quantized, without a word."""
    message = Message(RecordDict({"secaggplus_configs": ConfigRecord({"stage": "setup"})}), 7, "train")
    for _ in range(2):
        quantize_mod(message, context(7), lambda message, _: message)
    assert log.text.count("quantize_mod does nothing with SecAgg+") == 1
