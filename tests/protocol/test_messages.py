"""The bytes of orders, replies and parcels: golden ones that must never change within a version."""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.protocol.arrays import Layout, Model
from adaquantfl.protocol.messages import CODECS, TARGETS, Order, Reply
from adaquantfl.protocol.parcels import Log, digest_of, open_parcel

ORDERS = {
    "plain": Order(round=7, s=3, eta=0.1, key=0x1122334455667788, parcel=b"parcel"),
    "everything": Order(
        round=300,
        s=2.5,
        eta=0.05,
        key=2**64 - 1,
        quantizer=9,
        codec="dense",
        scope=1000,
        balanced=True,
        feedback=True,
        target="error",
        taken_back=(3, 299),
        layout='[true,[["","float32",[2],"q"]]]',
        parcel=b"x",
    ),
    "float32 with a codec of another package": Order(round=0, s=None, eta=1.0, key=0, codec="mine", scope="whole"),
    "evaluate": Order(round=0, s=None, eta=0.0, key=0, evaluate=True),
}
REPLIES = {
    "plain": Reply(7, 0.625, 600, frame=b"frame", order=0x11223344),
    "everything": Reply(300, 1.5, 2**31, b"frame", b"buffers", b"others"),
    "diverged": Reply(1, math.nan, 10),
}
GOLDEN = {
    "order plain": (
        "41514f310100000007000000ffffffff00000000000008409a9999999999b93f887766554433221106000000000000000000"
        "000000000000b940563970617263656c"
    ),
    "order everything": (
        "41514f31070903002c010000e803000000000000000004409a9999999999a93fffffffffffffffff01000000000000000201"
        "00001f000000030000002b0100005b747275652c5b5b22222c22666c6f61743332222c5b325d2c2271225d5d5d19d7ab2d78"
    ),
    "order float32 with a codec of another package": (
        "41514f310000ff0400000000000000000000000000000000000000000000f03f000000000000000000000000000000000000"
        "0000000000006d696e655299d6d8"
    ),
    "order evaluate": (
        "41514f310800000000000000ffffffff00000000000000000000000000000000000000000000000000000000000000000000"
        "000000000000c3a3be85"
    ),
    "reply plain": ("4152310144332211000000000000e43f07d804056672616d650d5ab6b0"),
    "reply everything": (
        "4152310700000000000000000000f83fac028080808008056672616d650762756666657273066f7468657273a9c8ec02"
    ),
    "reply diverged": ("4152310800000000000000000000f87f010a0db4a7d9"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_has_its_golden_bytes_and_comes_back(name: str) -> None:
    data = ORDERS[name].pack()
    assert data.hex() == GOLDEN[f"order {name}"]
    read = Order.unpack(data)
    assert replace(read, parcel=bytes(read.parcel)) == ORDERS[name]


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_has_its_golden_bytes_and_comes_back(name: str) -> None:
    data = REPLIES[name].pack()
    assert data.hex() == GOLDEN[f"reply {name}"]
    assert repr(Reply.unpack(data)) == repr(REPLIES[name])


LAYOUT = Layout.of({"w": np.zeros(4, np.float32), "n": np.zeros(1, np.int16)})
OLD = Model(np.array([0, 1, 2, 3], np.float32), np.empty(0, np.float32), b"\x01\x00")
NEW = Model(np.array([0, 1.5, 2, 3], np.float32), np.empty(0, np.float32), b"\x02\x00")
PARCELS = {
    "whole": (
        "41515031000000000000000004000000000000006e99e2c19218852aa0a8705872c5e4854151464c01ffff00000000000000"
        "000004000000000000001000000000000000000000000000803f0000004000004040d2d58eba0100"
    ),
    "difference": (
        "415150310100000004000000050000000100000087e888e39f51c52de0b4be98a8eaadb7010000000000803f010000000000"
        "00000000000002000000000000000200000000000000f03f79000000000000002d000000000000004151464c010000000100"
        "000001000000040000000000000001000000000000000000803f00000000044f63af3e090000000000000078016300000001"
        "0001090000000000000078016300000001000109000000000000007801730000004100410900000000000000780163000000"
        "010001"
    ),
    "held": ("41515031010000000400000004000000000000006e99e2c19218852aa0a8705872c5e485"),
}


def parcels() -> dict[str, bytes]:
    log = Log(4, digest_of(OLD))
    whole = log.parcel(None, OLD)
    after = replace(log, steps=(), holds={}).after_round(OLD, NEW, None)
    # A model of four elements is smaller than any step; the step is made by hand from the same parts.
    from adaquantfl.codecs.difference import encode_difference
    from adaquantfl.protocol import parcels

    part = encode_difference(OLD.weights, NEW.weights)
    step = parcels._STEP.pack(1, 1.0, 1) + parcels._PART.pack(0.0, 2) + NEW.others + parcels._PART.pack(1.0, len(part))
    step += part
    return {
        "whole": whole,
        "difference": replace(after, steps=(step,)).parcel(4, NEW),
        "held": log.parcel(log.round, OLD),
    }


@pytest.mark.parametrize("name", PARCELS)
def test_a_parcel_has_its_golden_bytes_and_leads_to_the_model(name: str) -> None:
    data = parcels()[name]
    assert data.hex() == PARCELS[name]
    held = open_parcel(parcels()["whole"], None, LAYOUT)
    opened = open_parcel(data, held, LAYOUT)
    wanted = NEW if name == "difference" else OLD
    np.testing.assert_array_equal(opened.model.weights, wanted.weights)
    assert opened.model.others == wanted.others


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for read in (Order.unpack, Reply.unpack):
        with pytest.raises(aq.FrameError):
            read(data)
        with pytest.raises(aq.FrameError):
            read((b"AQO1" if read is Order.unpack else b"AR1") + data)
    with pytest.raises(aq.AdaQuantError):
        open_parcel(data, None, LAYOUT)
    with pytest.raises(aq.AdaQuantError):
        open_parcel(b"AQP1" + data, None, LAYOUT)


# ---------------------------------------------------------------------------------------------- properties

rounds = st.integers(0, 2**32 - 1)
numbers = st.floats(1e-6, 65535.0)
ANY_ORDER = st.builds(
    Order,
    round=rounds,
    s=st.none() | st.integers(1, 65535) | numbers,
    eta=numbers,
    key=st.integers(0, 2**64 - 1),
    quantizer=st.integers(0, 254),
    codec=st.sampled_from([*CODECS, "of-another-package"]),
    scope=st.sampled_from(["whole", "tensor"]) | st.integers(1, 2**32 - 2),
    balanced=st.booleans(),
    feedback=st.booleans(),
    target=st.sampled_from(TARGETS),
    taken_back=st.lists(rounds, max_size=3).map(tuple),
    layout=st.text("[]{}é", max_size=9),
    parcel=st.binary(max_size=20),
    evaluate=st.booleans(),
)
ANY_REPLY = st.builds(
    Reply,
    round=rounds,
    loss=st.floats(allow_nan=False, allow_infinity=False),
    examples=rounds,
    frame=st.binary(max_size=30),
    buffers=st.binary(max_size=10),
    others=st.binary(max_size=10),
)


@given(ANY_ORDER)
def test_an_order_comes_back_from_its_bytes(order: Order) -> None:
    read = Order.unpack(order.pack())
    assert replace(read, parcel=bytes(read.parcel)) == order


@given(ANY_REPLY)
def test_a_reply_comes_back_from_its_bytes(reply: Reply) -> None:
    assert Reply.unpack(reply.pack()) == reply


@given(ANY_ORDER, ANY_REPLY, st.data())
def test_every_changed_byte_and_every_truncation_is_noticed(order: Order, reply: Reply, data: st.DataObject) -> None:
    head = len(order.pack()) - len(order.parcel)  # the parcel is checked by its digest when it is opened
    for kind, message, checked in ((Order, order.pack(), head), (Reply, reply.pack(), len(reply.pack()))):
        place = data.draw(st.integers(0, checked - 1))
        flip = data.draw(st.integers(1, 255))
        altered = message[:place] + bytes([message[place] ^ flip]) + message[place + 1 :]
        for bad in (altered, message[:place], message + b"\0"):
            with pytest.raises(aq.FrameError):
                kind.unpack(bad)


@pytest.mark.parametrize("bad", [{"s": np.nan}, {"s": np.inf}, {"eta": np.nan}, {"layout": b"\xff"}], ids=str)
def test_an_order_whose_checksum_is_right_but_not_its_content_is_refused(bad: dict[str, Any]) -> None:
    order = replace(Order(0, 2.0, 0.1, 0), **{name: value for name, value in bad.items() if name != "layout"})
    data = order.pack()
    if "layout" in bad:
        data = replace(order, layout="?").pack()
        place = len(data) - 5
        data = data[:place] + b"\xff"
        data += struct.pack("<I", zlib.crc32(data))
    with pytest.raises(aq.Refused, match="cannot be read"):
        aq.Client(0).open(data)
