"""Orders and replies come back from their bytes, and nothing else passes for one."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.protocol.messages import CODECS, TARGETS, Order, Reply

rounds = st.integers(0, 2**32 - 1)
numbers = st.floats(1e-6, 65535.0)
ORDERS = st.builds(
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
REPLIES = st.builds(
    Reply,
    round=rounds,
    loss=st.floats(allow_nan=False, allow_infinity=False),
    examples=rounds,
    frame=st.binary(max_size=30),
    buffers=st.binary(max_size=10),
    others=st.binary(max_size=10),
)


@given(ORDERS)
def test_an_order_comes_back_from_its_bytes(order: Order) -> None:
    read = Order.unpack(order.pack())
    assert replace(read, parcel=bytes(read.parcel)) == order


@given(REPLIES)
def test_a_reply_comes_back_from_its_bytes(reply: Reply) -> None:
    assert Reply.unpack(reply.pack()) == reply


@given(ORDERS, REPLIES, st.data())
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
