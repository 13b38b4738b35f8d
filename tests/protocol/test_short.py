"""Frames in replies and parcels leave out what their receiver knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.frame import read_frame
from adaquantfl.protocol import steps
from adaquantfl.protocol.arrays import Layout, Model
from adaquantfl.protocol.downlink import Log, digest_of, open_parcel
from adaquantfl.protocol.messages import Reply
from adaquantfl.protocol.steps import Relay, add_up
from support.rounds import federation, reply_of

D = 1011


def test_a_relayed_frame_of_another_dimension_is_refused() -> None:
    model = Model(np.zeros(D, np.float32), np.empty(0, np.float32))
    held = open_parcel(Log(0, digest_of(model)).parcel(None, model), None, Layout.of(model.weights))
    frames = [(read_frame(aq.compress(np.ones(2 * D), 1, k)), 1.0) for k in range(2)]
    step = steps._frames_step(Relay(frames), steps._PART.pack(0.0, 0))
    parcel = replace(Log(1, bytes(16)), steps=(step,)).parcel(0, model)
    with pytest.raises(aq.FrameError, match="dimension 2,022, expected 1,011"):
        open_parcel(parcel, held, None)


@pytest.mark.parametrize("quantizer", ["uniform", "centroid"])
def test_a_reply_has_a_short_frame_and_the_server_takes_whole_ones_too(quantizer: str) -> None:
    runs = [federation(D, rule=aq.Fixed(bits=1), quantizer=quantizer) for _ in range(2)]
    runs[1].change = lambda round, client, reply: reply  # read by the test, and packed with its whole frame
    short, whole = (run.play() for run in runs)
    assert runs[0].server.weights.tobytes() == runs[1].server.weights.tobytes()
    assert short["wire_bytes_up"] <= whole["wire_bytes_up"] - 3 * 30
    assert short["payload_bytes_up"] == whole["payload_bytes_up"], "the frames without their framing"
    assert Reply.unpack(runs[0].replies[0]).frame[0] < 8
    assert Reply.unpack(runs[1].replies[0]).frame.startswith(b"AQFL")
    assert reply_of(runs[0].clients[0], runs[0].replies[0]).frame == runs[1].frame(0)


def test_a_short_frame_that_cannot_be_read_is_refused_and_the_client_may_answer_again() -> None:
    run = federation(D, quantizer="centroid")
    orders = run.server.open(range(3))
    replies = [run.clients[c].reply(run.clients[c].open(order) + 1, loss=1.0) for c, order in orders.items()]
    honest = Reply.unpack(replies[0])
    for frame in (b"\x09\x01\x01", honest.frame[:9], honest.frame[:-1], Reply.unpack(replies[1]).frame[:-2]):
        with pytest.raises(aq.Refused, match="client 0 was refused"):
            run.server.receive(0, replace(honest, frame=frame).pack())
    run.server.receive(0, replies[0])


def test_relayed_frames_leave_out_what_the_first_one_says() -> None:
    rng = np.random.default_rng(1)
    old = Model(rng.standard_normal(D).astype(np.float32), np.empty(0, np.float32))
    frames = [(read_frame(aq.compress(rng.standard_normal(D), 1, k, quantizer="centroid")), 0.3 + k) for k in range(8)]
    relay = Relay(frames, 1.25)
    new = Model(add_up(old.weights, relay), old.buffers)
    log = Log(0, digest_of(old)).after_round(old, new, relay)
    held = open_parcel(Log(0, digest_of(old)).parcel(None, old), None, Layout.of(old.weights))
    parcel = log.parcel(0, new)
    whole = 36 + 12 + 16 + sum(16 + frame.size for frame, _ in frames)  # heads of parcel, step and parts
    assert len(parcel) < whole - 7 * 30
    assert open_parcel(parcel, held, None).model.weights.tobytes() == new.weights.tobytes()
    for length in range(len(parcel)):
        with pytest.raises(aq.AdaQuantError):
            open_parcel(parcel[:length], held, None)
