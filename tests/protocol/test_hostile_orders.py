"""Orders that no server would send: each is refused with a reason, at once, and the client is as it was before."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.errors import FrameError
from adaquantfl.protocol.arrays import MOST_ARRAYS, MOST_LAYOUT_BYTES, Layout, Model
from adaquantfl.protocol.messages import Order
from adaquantfl.protocol.parcels import (
    _PARCEL,
    _PART,
    _STEP,
    MOST_FRAMES,
    MOST_STEPS,
    Held,
    Log,
    digest_of,
    open_parcel,
)
from support.costs import allowed, most_taken

HOSTILE_LAYOUTS = {
    "long numbers": f'[true,[["","float32",[{"9" * 4300}],"q"]]]',
    "many long numbers": "[" + ",".join(["9" * 4000] * 1000) + "]",
    "deep": "[" * 100_000,
    "deep and closed": "[" * 100_000 + "]" * 100_000,
    "infinite": '[true,[["","float32",[Infinity],"q"]]]',
    "negative": '[true,[["","float32",[-1],"q"]]]',
    "fraction": '[true,[["","float32",[4.0],"q"]]]',
    "flat with a name": '[true,[["w","float32",[4],"q"]]]',
    "flat twice": '[true,[["","float32",[2],"q"],["b","float32",[2],"q"]]]',
    "flat matrix": '[true,[["","float32",[2,2],"q"]]]',
    "the same name twice": '[false,[["w","float32",[2],"q"],["w","float32",[2],"q"]]]',
    "quantized integers": '[false,[["w","int64",[4],"q"]]]',
    "exact float64": '[false,[["w","float32",[4],"q"],["b","float64",[4],"e"]]]',
    "unknown kind": '[false,[["w","float32",[4],"z"]]]',
    "kind that is a list": '[false,[["w","float32",[4],[]]]]',
    "many axes": f'[false,[["w","float32",[{",".join(["1"] * 40)}],"q"]]]',
    "empty and enormous": '[false,[["w","float32",[4],"q"],["b","int8",[0,4294967296,4294967296],"o"]]]',
    "half a character": '[false,[["\\ud800","float32",[4],"q"]]]',
    "many arrays": json.dumps([False, [[str(i), "float32", [1], "q"] for i in range(MOST_ARRAYS + 1)]]),
    "many bytes": '[false,[["' + "w" * MOST_LAYOUT_BYTES + '","float32",[4],"q"]]]',
    "lists": "[" + "[]," * 1_300_000 + "0]",
    "dictionaries": "[" + '{"":0},' * 500_000 + "0]",
    "more than it brings": '[false,[["w","float32",[1],"q"],["x","float32",[2147483648],"e"]]]',
    "no array": "[false,[]]",
    "no list": "7",
}


def weights() -> dict[str, Any]:
    return {
        "a": np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4),
        "b": np.zeros(9, np.float64),
        "x.running_mean": np.ones(2, np.float32),
        "n": np.zeros(1, np.int64),
    }


def orders() -> tuple[Held, Order]:
    """The model that a client holds after a round; and an order that brings the whole model."""
    server, client = aq.Server(weights(), seed=3), aq.Client(0)
    given: Any = client.open(server.open([0])[0])
    server.receive(0, client.reply({name: array + 1 for name, array in given.items()}, loss=1.0))
    server.close()
    held = client._models.last
    assert held is not None
    server.open([0])
    return held, Order.unpack(server.order(0, holds=None))


@pytest.mark.parametrize("name", HOSTILE_LAYOUTS)
def test_a_hostile_layout_is_refused_at_once_and_the_held_model_stays(name: str) -> None:
    held, whole = orders()
    client = aq.Client(0)
    client._models.last = replace(held, digest=bytes(16))
    begun, data = time.process_time(), replace(whole, layout=HOSTILE_LAYOUTS[name]).pack()
    with pytest.raises(aq.Refused):
        client.open(data)
    assert time.process_time() - begun < 2
    assert most_taken(lambda: client.open(data)) <= allowed("an order", len(data), 100)
    assert client.holds == bytes(16)
    if name != "more than it brings":
        with pytest.raises(FrameError, match="layout of the model cannot be read"):
            Layout.from_json(HOSTILE_LAYOUTS[name])


def test_a_server_refuses_a_model_that_no_client_would_take() -> None:
    many = {str(i): np.zeros(1, np.float32) for i in range(MOST_ARRAYS + 1)}
    with pytest.raises(aq.ConfigError, match="65,537 arrays"):
        aq.Server(many)


def test_the_steps_of_a_parcel_are_limited_before_they_are_walked() -> None:
    held, _ = orders()
    empty = _STEP.pack(0, 1.0, 0) + _PART.pack(0.0, 48) + bytes(48)
    bodies = {
        "steps": (MOST_STEPS + 1, empty),
        "frames": (1, _STEP.pack(0, 1.0, MOST_FRAMES + 1) + empty[_STEP.size :]),
        "bytes than the model": (1, bytes(5000)),
    }
    for words, (steps, body) in bodies.items():
        client = aq.Client(0)
        client._models.last = held
        parcel = _PARCEL.pack(b"AQP1", 1, held.round, held.round + 1, steps, bytes(16)) + body
        with pytest.raises(aq.Refused, match=words):
            client.open(Order(1, 3, 0.1, 0, parcel=parcel).pack())


def test_a_log_forgets_steps_that_no_client_would_take() -> None:
    """Else the order of a client that was away for long would be refused."""
    layout = Layout.of(np.zeros(20_000, np.float32))
    models = [Model(np.full(20_000, 0, np.float32), np.empty(0, np.float32))]
    log = Log(0, digest_of(models[0]))
    for _ in range(MOST_STEPS + 2):
        models.append(replace(models[-1], weights=models[-1].weights + np.eye(1, 20_000, dtype=np.float32)[0]))
        log = log.after_round(models[-2], models[-1], None)
    assert len(log.steps) == MOST_STEPS
    held = Held(2, models[2], digest_of(models[2]), layout)
    found = open_parcel(log.parcel(2, models[-1]), held, None)
    np.testing.assert_array_equal(found.model.weights, models[-1].weights)
