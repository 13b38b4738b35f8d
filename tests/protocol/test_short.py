"""Short frames: what is left out comes back, and no bytes make more of them than a refusal."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs.frame import read_frame
from adaquantfl.codecs.varints import varint
from adaquantfl.protocol import steps
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


SCALES = (  # of thirteen blocks, and the stretch
    "559fc43d00000000000000000000000000000000000000008077133f0000000000000000000000000000000000000000000000000000803f"
)
GOLDEN = {  # quantizer, what is known of the segments, whether the key is another: what is before the body
    ("uniform", "asked", False): "000101000000400000c03f00000000",
    ("uniform", "other", False): "03010103bc050bac02000000400000c03f00000000",
    ("centroid", "asked", False): "010101" + SCALES,
    ("centroid", "asked", True): "050101" + SCALES + "0800000000000000",
    ("centroid", "other", False): "0301010d80048001201008040802018002200804" + SCALES,
}


@pytest.mark.parametrize("case", GOLDEN)
def test_a_short_frame_has_its_golden_bytes(case: tuple[str, str, bool]) -> None:
    quantizer, segments, other_key = case
    x = np.zeros(D, np.float32)
    x[3], x[705] = 2.0, -1.5
    order = Order(0, 1, 0.1, 7, quantizer=find(quantizer).tags[find(quantizer).norm(None)])
    frame = aq.compress(x, 1, 8 if other_key else 7, segments=order.segments(LENGTHS), quantizer=quantizer)
    known = order.known(LENGTHS)
    short = shorten(frame, known if segments == "asked" else replace(known, segments=np.array([1000, 11])))
    assert short is not None
    body = read_frame(frame).body.tobytes()
    assert short.hex() == GOLDEN[case] + body.hex()


def test_segments_in_large_blocks_have_a_way_of_their_own() -> None:
    x = np.ones(100_000, np.float32)
    frame = aq.compress(x, 1, 7, quantizer="centroid", stretch=3.0)
    known = Known(9, 100_000, None, 7)
    short = shorten(frame, known)
    assert short is not None
    assert len(read_frame(frame).header.scales) == 6, "65,536 and the rest, in blocks of 2^k"
    assert short[0] == 1
    assert lengthen(short, known) == frame
    coarse = aq.compress(x, 1, 7, quantizer="centroid", stretch=300.0)
    assert read_frame(shorten_and_back(coarse, known)).header.segments is not None


def shorten_and_back(frame: bytes, known: Known) -> bytes:
    short = shorten(frame, known)
    assert short is not None
    assert lengthen(short, known) == frame
    return frame


@pytest.mark.parametrize(
    ("quantizer", "begins"), [("uniform", 1), ("uniform", 2), ("uniform", 4), ("centroid", 8), ("eden", 255)]
)
def test_what_a_quantizer_cannot_have_is_refused(quantizer: str, begins: int) -> None:
    """Blocks are for rotating quantizers: cutting a million segments for nothing would take seconds."""
    _, order = frame_of(quantizer)
    with pytest.raises(aq.FrameError, match=f"cannot begin with {begins}"):
        lengthen(bytes([begins, 1, 1]) + bytes(60), order.known(LENGTHS))


def test_listed_segments_cost_no_more_memory_than_their_bytes() -> None:
    """The first segment has one element: buckets of that size would be as many as elements."""
    d = 200_000_000
    short = bytes([3, 1, 1]) + varint(2) + varint(1) + varint(d - 1) + bytes(8) + b"\x20" + bytes(4)
    tracemalloc.start()
    try:
        with suppress(aq.FrameError):
            read_frame(lengthen(short, Known(0, d, None)), d)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_first_relayed_frame_must_be_of_the_models_dimension() -> None:
    model = Model(np.zeros(D, np.float32), np.empty(0, np.float32))
    held = open_parcel(Log(0, digest_of(model)).parcel(None, model), None, Layout.of(model.weights))
    frames = [(aq.compress(np.ones(2 * D), 1, k), 1.0) for k in range(2)]
    step = steps._frames_step(Relay(frames), steps._PART.pack(0.0, 0), 2 * D)
    parcel = replace(Log(1, bytes(16)), steps=(step,)).parcel(0, model)
    with pytest.raises(aq.FrameError, match="dimension 2,022, expected 1,011"):
        open_parcel(parcel, held, None)


def test_another_key_travels_with_the_frame() -> None:
    frame, order = frame_of("centroid", key=KEY + 1)
    known = order.known(LENGTHS)
    short, usual = shorten(frame, known), shorten(frame_of("centroid")[0], known)
    assert short is not None
    assert usual is not None
    assert lengthen(short, known) == frame
    assert lengthen(short, replace(known, key=None)) == frame, "the key is in it"
    with pytest.raises(aq.FrameError, match="lacks its key"):
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


@pytest.mark.parametrize("quantizer", ["uniform", "centroid"])
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


def test_a_short_frame_that_cannot_be_read_is_refused_and_the_client_may_answer_again() -> None:
    run = federation(D, quantizer="centroid")
    orders = run.server.open(range(3))
    replies = [run.clients[c].reply(run.clients[c].open(order) + 1, loss=1.0) for c, order in orders.items()]
    honest = Reply.unpack(replies[0])
    for frame in (b"\x09\x01\x01", honest.frame[:9], honest.frame[:-1], Reply.unpack(replies[1]).frame[:-2]):
        with pytest.raises(aq.Refused, match="client 0 was refused"):
            run.server.receive(0, replace(honest, frame=frame).pack())
    with pytest.raises(aq.Refused, match="short, but it has none"):
        run.server.receive(0, replace(honest, frame=b"").pack())
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
