"""The client's line: what the mod sends, and what it leaves alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from adaquantfl.flower.plan import KEY, Plan
from adaquantfl.flower.update import NAME, STYPE, Model, unpack
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

import adaquantfl as aq
from adaquantfl.flower import quantize_mod
from support.fake_flower import Arrays, Client, arrays_of, carry, context, record, train_message

PLAN = Plan(round=3, s=50_000, seed=1)


def planned(arrays: Arrays, plan: Plan = PLAN) -> Message:
    message = train_message(arrays)
    plan.write(message)
    return carry(message)


def reply_of(client: Client, message: Message, node: Context | None = None) -> Message:
    return carry(client.app(message, node or context(node=1, partition=0)))


def sent_arrays(reply: Message) -> dict[str, Array]:
    (answer,) = reply.content.array_records.values()
    return dict(answer)


def opened(reply: Message, arrays: Arrays, plan: Plan = PLAN) -> Arrays:
    result = unpack(sent_arrays(reply), Model(record(arrays)), plan)
    return {name: array.numpy() for name, array in result.arrays.items()}


def plus(amount: float) -> Client:
    return Client(lambda _, array: array + array.dtype.type(amount))


def test_the_reply_is_one_small_update(rng: np.random.Generator) -> None:
    model = {"a": rng.standard_normal((100, 100)).astype("f4"), "b": rng.standard_normal(100).astype("f4")}
    client = Client(lambda _, array: array + rng.standard_normal(array.shape).astype("f4"))
    reply = reply_of(client, planned(model, replace(PLAN, s=2)))
    (name, array), *rest = sent_arrays(reply).items()
    assert (name, array.stype, rest) == (NAME, STYPE, [])
    assert len(array.data) < 0.02 * 4 * 10_100  # float32 took 4 bytes an element
    assert reply.content["metrics"]["train_loss"] == 1.0


def test_the_frame_is_the_one_that_compress_makes(rng: np.random.Generator) -> None:
    model = {"a": np.zeros((30, 4), "f4"), "b": np.zeros(50, "f4")}
    change = {name: rng.standard_normal(array.shape).astype("f4") for name, array in model.items()}
    reply = reply_of(Client(lambda name, _: change[name]), planned(model), context(node=9, partition=5))
    flat = np.concatenate([array.ravel() for array in change.values()])
    frame = aq.compress(flat, PLAN.s, aq.stream_key(PLAN.seed, PLAN.round, 5), segments=[120, 50])
    assert sent_arrays(reply)[NAME].data.endswith(frame)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 4, 5)])
def test_floats_come_back_in_their_type_and_shape(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    model = {"w": rng.standard_normal(shape).astype(dtype), "other": np.ones(4, "f4")}
    trained = {"w": np.asarray(model["w"] + model["w"].dtype.type(0.5)), "other": np.ones(4, "f4")}
    after = opened(reply_of(Client(lambda name, _: trained[name]), planned(model)), model)
    assert after["w"].dtype == dtype
    assert after["w"].shape == shape
    step = 0.5 * np.sqrt(model["w"].size) / 50_000  # norm / s
    np.testing.assert_allclose(after["w"], trained["w"], rtol=2e-3 if dtype == "float16" else 1e-6, atol=1.01 * step)


def test_what_is_not_a_float_with_a_counterpart_goes_as_it_is() -> None:
    model: Arrays = {
        "w": np.ones((2, 3), "f4"),
        "steps": np.array(7, "i8"),
        "mask": np.array([True, False]),
        "empty": np.zeros((0, 3), "f4"),
        "bn.running_var": np.full(4, 0.01, "f4"),
        "grown": np.ones(3, "f4"),
        "complex": np.ones(2, "c8"),
        "fortran": np.asfortranarray(np.ones((2, 3), "f4")),
    }
    trained = {name: array + 1 if array.dtype != bool else ~array for name, array in model.items()}
    trained["grown"] = np.ones(4, "f4")
    trained = {"extra": np.ones(2, "f4"), **trained}
    app = ClientApp(mods=[quantize_mod])
    app.train()(lambda message, _: Message(RecordDict({"arrays": record(trained)}), reply_to=message))
    reply = carry(app(planned(model), context(1, 0)))
    assert set(sent_arrays(reply)) == set(trained) - {"w", "fortran"} | {NAME}
    after = opened(reply, model)
    assert list(after) == list(trained)  # strategies go by the order
    for name, array in trained.items():
        assert (after[name].dtype, after[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_allclose(after[name], array, rtol=1e-4, err_msg=name)


def test_bytes_that_numpy_has_no_type_for_come_through() -> None:
    """bfloat16 arrives as two-byte voids; other serializations are none of our business."""
    bfloat16 = np.array([0x3F80, 0x4000], "u2").view("V2")
    model = ArrayRecord({"w": Array(np.ones(3, "f4")), "b": Array(bfloat16), "s": Array("x", (1,), "pickle", b"abc")})
    message = train_message({})
    message.content["arrays"] = model
    PLAN.write(message)
    app = ClientApp(mods=[quantize_mod])
    app.train()(lambda message, _: Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message))
    reply = app(message, context(1, 0))
    after = unpack(sent_arrays(reply), Model(model), PLAN).arrays
    assert after["b"].numpy().tobytes() == bfloat16.tobytes()
    assert after["s"].data == b"abc"


def test_a_reply_in_another_float_type_keeps_it() -> None:
    model = {"w": np.ones(5, "f8")}
    client = Client(lambda _, array: (array + 1).astype("f4"))
    after = opened(reply_of(client, planned(model)), model)
    assert after["w"].dtype == np.float32
    np.testing.assert_allclose(after["w"], 2.0, rtol=1e-4)


def test_a_handler_may_empty_the_record_it_was_given() -> None:
    model = {"w": np.ones(5, "f4")}
    app = ClientApp(mods=[quantize_mod])

    @app.train()
    def train(message: Message, node: Context) -> Message:
        (w,) = message.content["arrays"].to_numpy_ndarrays(keep_input=False)
        return Message(RecordDict({"arrays": record({"w": w + 1})}), reply_to=message)

    np.testing.assert_allclose(opened(app(planned(model), context(1)), model)["w"], 2.0, rtol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_update_that_is_not_finite_becomes_an_error_that_says_so(bad: float) -> None:
    reply = reply_of(Client(lambda _, array: array * np.float32(bad)), planned({"w": np.ones(5, "f4")}))
    assert reply.has_error()
    assert "5 NaN or infinite element(s)" in reply.error.reason
    assert "learning rate" in reply.error.reason


def test_other_messages_are_left_alone() -> None:
    model = {"w": np.ones(5, "f4")}
    without_plan = reply_of(plus(1), carry(train_message(model)))
    np.testing.assert_array_equal(arrays_of(without_plan)["w"], np.full(5, 2, "f4"))
    message = planned(model)
    evaluate = Message(message.content, dst_node_id=7, message_type="evaluate")
    assert reply_of(plus(1), evaluate).content["metrics"]["seen"] == 1


def test_an_error_of_the_handler_stays_what_it_is() -> None:
    def fail(_: str, array: Any) -> Any:
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        Client(fail).app(planned({"w": np.ones(5, "f4")}), context(1))


def test_several_records_go_as_they_are() -> None:
    app = ClientApp(mods=[quantize_mod])
    two = {"arrays": record({"w": np.ones(3, "f4")}), "control": record({"c": np.ones(3, "f4")})}
    app.train()(lambda message, _: Message(RecordDict(dict(two)), reply_to=message))
    reply = app(planned({"w": np.ones(3, "f4")}), context(1))
    assert list(reply.content["arrays"]) == ["w"]


def test_a_plan_of_another_version_is_an_error_with_advice() -> None:
    message = train_message({"w": np.ones(3, "f4")}, {KEY: json.dumps({"format": 99})})
    reply = reply_of(plus(1), message)
    assert "Install the same version of adaquantfl" in reply.error.reason


@pytest.mark.parametrize("config", [{}, {"lr": 0.1}])
def test_a_plan_travels_in_the_first_config_and_replaces_an_older_one(config: dict[str, Any]) -> None:
    message = train_message({}, config)
    PLAN.write(message)
    replace(PLAN, s=4, round=4, scope=16, exact=("a*",)).write(message)
    assert Plan.read(carry(message)) == replace(PLAN, s=4, round=4, scope=16, exact=("a*",))
    replace(PLAN, s=None).write(message)
    assert Plan.read(message) is None
    assert message.content["config"] == ConfigRecord(config)


def test_randomness_comes_from_the_partition_and_otherwise_from_the_node(rng: np.random.Generator) -> None:
    model = {"w": np.zeros(1000, "f4")}
    update = rng.standard_normal(1000).astype("f4")
    message = planned(model, replace(PLAN, s=3))

    def levels(node: Context) -> bytes:
        data = sent_arrays(reply_of(Client(lambda *_: update), message, node))[NAME].data
        return data[data.index(b"AQFL") :]

    assert levels(context(1, 4)) == levels(context(2, 4)) == levels(context(2, "4"))
    assert levels(context(1, 4)) != levels(context(1, 5))
    assert levels(context(4)) == levels(context(4, "north")) == levels(context(1, 4))
    assert levels(context(2**64 - 1)) != levels(context(2**64 - 2))  # node ids take all 64 bits


def test_buckets_and_whole_are_scopes_too(rng: np.random.Generator) -> None:
    model = {"a": np.zeros(30, "f4"), "b": np.zeros(20, "f4")}
    update = {name: rng.standard_normal(len(array)).astype("f4") for name, array in model.items()}
    for scope, scales in (("tensor", 2), ("whole", 1), (10, 5)):
        plan = replace(PLAN, scope=scope)
        reply = reply_of(Client(lambda name, _: update[name]), planned(model, plan))
        data = sent_arrays(reply)[NAME].data
        assert len(aq.decode(data[data.index(b"AQFL") :]).scales) == scales
        np.testing.assert_allclose(opened(reply, model, plan)["b"], update["b"], atol=1e-3)
