"""Short frames: what is left out comes back, and no bytes make more of them than a refusal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs.frame import read_frame
from adaquantfl.protocol.arrays import Layout, Model
from adaquantfl.protocol.downlink import Log, digest_of, open_parcel
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.short import LONGEST, Known, lengthen, shorten
from adaquantfl.protocol.steps import Relay, add_up
from adaquantfl.quantizers import find
from adaquantfl.quantizers.registry import names
from support.rounds import federation, reply_of

LENGTHS = (700, 11, 300)
D = sum(LENGTHS)
KEY = aq.stream_key(3, 1, 4)


def frame_of(quantizer: str, scope: str | int = "tensor", key: int = KEY, s: int = 1) -> tuple[bytes, Order]:
    kind = find(quantizer)
    order = Order(1, s, 0.1, KEY, quantizer=kind.tags[kind.norm(None)], scope=scope)
    x = np.random.default_rng(5).standard_normal(D)
    return aq.compress(x, s, key, segments=order.segments(LENGTHS), quantizer=quantizer), order


@pytest.mark.parametrize("scope", ["tensor", "whole", 64])
@pytest.mark.parametrize("quantizer", names())
def test_every_quantizers_frame_comes_back(quantizer: str, scope: str | int) -> None:
    frame, order = frame_of(quantizer, scope)
    short = shorten(frame, order.known(LENGTHS))
    assert short is not None
    assert lengthen(short, order.known(LENGTHS)) == frame
    assert len(short) <= len(frame) - 30
    assert read_frame(frame).body.tobytes() in short, "what the codec wrote is not touched"


def test_a_short_frame_has_its_golden_bytes() -> None:
    x = np.zeros(D, np.float32)
    x[3], x[705] = 2.0, -1.5
    order = Order(0, 1, 0.1, KEY)
    short = shorten(aq.compress(x, 1, KEY, segments=order.segments(LENGTHS)), order.known(LENGTHS))
    assert short is not None
    assert short.hex() == GOLDEN


GOLDEN = "000101000000400000c03f00000000100206ec25"


def test_another_key_travels_with_the_frame() -> None:
    frame, order = frame_of("centroid", key=KEY + 1)
    known = order.known(LENGTHS)
    short, usual = shorten(frame, known), shorten(frame_of("centroid")[0], known)
    assert short is not None
    assert usual is not None
    assert lengthen(short, known) == frame
    assert lengthen(short, replace(known, key=None)) == frame, "the key is in it"
    with pytest.raises(aq.FrameError, match="lacks the key"):
        lengthen(usual, replace(known, key=None))


def test_what_is_not_as_known_travels_whole() -> None:
    frame, order = frame_of("uniform")
    known = order.known(LENGTHS)
    assert shorten(frame, replace(known, quantizer=9)) is None
    assert shorten(frame, replace(known, dimension=D + 1)) is None
    assert shorten(aq.encode_float32(np.ones(D, np.float32)), known) is None
    long = aq.compress(np.ones(8 * LONGEST), s=255, key=0, codec="fixed")
    assert len(long) > LONGEST
    assert shorten(long, Known(0, 8 * LONGEST, None)) is None
    other = shorten(frame, replace(known, segments=np.array([1000, 11])))
    assert other is not None, "other segments are listed"
    assert lengthen(other, replace(known, segments=None)) == frame


@given(st.binary(max_size=80), st.sampled_from(names()), st.sampled_from(["tensor", "whole", 64]))
def test_bytes_that_are_no_short_frame_are_refused(data: bytes, quantizer: str, scope: str | int) -> None:
    """By `lengthen` or when the frame is read; nothing else happens."""
    _, order = frame_of(quantizer, scope)
    try:
        frame = lengthen(data, order.known(LENGTHS))
        aq.Accumulator(D).add(frame, 1.0)
    except aq.FrameError:
        return


@given(st.sampled_from(names()), st.data())
def test_a_changed_short_frame_is_read_or_refused(quantizer: str, data: st.DataObject) -> None:
    frame, order = frame_of(quantizer)
    short = bytearray(shorten(frame, order.known(LENGTHS)) or b"")
    place = data.draw(st.integers(0, len(short) - 1))
    short[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        levels = aq.decode(lengthen(bytes(short), order.known(LENGTHS)), dimension=D)
    except aq.FrameError:
        return
    assert np.isfinite(levels.dequantize()).all()


@pytest.mark.parametrize("quantizer", ["uniform", "centroid", "mixed"])
def test_a_reply_has_a_short_frame_and_the_server_takes_whole_ones_too(quantizer: str) -> None:
    runs = [federation(D, rule=aq.Fixed(bits=1), quantizer=quantizer) for _ in range(2)]
    runs[1].change = lambda round, client, reply: reply  # read by the test, and packed with its whole frame
    short, whole = (run.play() for run in runs)
    assert runs[0].server.weights.tobytes() == runs[1].server.weights.tobytes()
    assert short["wire_bytes_up"] <= whole["wire_bytes_up"] - 3 * 30
    assert short["payload_bytes_up"] == whole["payload_bytes_up"], "the frames without their framing"
    assert Reply.unpack(runs[0].replies[0]).short
    assert not Reply.unpack(runs[1].replies[0]).short
    assert reply_of(runs[0].clients[0], runs[0].replies[0]).frame == runs[1].frame(0)


def test_a_short_frame_for_another_order_is_refused() -> None:
    run = federation(D, quantizer="centroid")
    orders = run.server.open(range(3))
    replies = [run.clients[c].reply(run.clients[c].open(order) + 1, loss=1.0) for c, order in orders.items()]
    forged = replace(Reply.unpack(replies[1]), frame=b"\x09\x01\x01", order=Reply.unpack(replies[0]).order)
    with pytest.raises(aq.Refused, match="begins with 9"):
        run.server.receive(0, forged.pack())
    run.server.receive(0, replies[0])


def test_relayed_frames_leave_out_what_the_first_one_says() -> None:
    rng = np.random.default_rng(1)
    old = Model(rng.standard_normal(D).astype(np.float32), np.empty(0, np.float32))
    frames = [(aq.compress(rng.standard_normal(D), 1, k, quantizer="centroid"), 0.3 + k) for k in range(8)]
    relay = Relay(frames, 1.25)
    new = Model(add_up(old.weights, relay), old.buffers)
    log = Log(0, digest_of(old)).after_round(old, new, relay)
    held = open_parcel(Log(0, digest_of(old)).parcel(None, old), None, Layout.of(old.weights))
    parcel = log.parcel(0, new)
    whole = 36 + 12 + 16 + sum(16 + len(frame) for frame, _ in frames)  # heads of parcel, step and parts
    assert len(parcel) < whole - 7 * 30
    assert open_parcel(parcel, held, None).model.weights.tobytes() == new.weights.tobytes()
    for length in range(len(parcel)):
        with pytest.raises(aq.AdaQuantError):
            open_parcel(parcel[:length], held, None)
