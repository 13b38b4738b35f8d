"""A round with clients that fail: the others' mean, the reasons in the history, a sentence where too few are left."""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.uplink import levels_for
from adaquantfl.quantizers.base import Count
from adaquantfl.quantizers.registry import find, names
from support.rounds import EXAMPLES, Change, federation, reply_of

D = 60


def frame_of(x: np.ndarray, s: int = 3) -> bytes:
    return aq.compress(x.astype(np.float32), s=s, key=0, segments=[len(x)])


def flipped(data: bytes) -> bytes:
    """The last byte before the checksum is another."""
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def with_nan_scale(frame: bytes) -> bytes:
    """A frame with a good checksum and its last scale replaced by NaN."""
    scales = aq.decode(frame).scales
    place = frame.index(struct.pack("<f", scales[-1]))
    changed = frame[:place] + struct.pack("<f", float("nan")) + frame[place + 4 : -4]
    return changed + struct.pack("<I", zlib.crc32(changed))


def with_frame(frame: bytes) -> Change:
    return lambda round, client, reply: replace(reply, frame=frame)


FAULTS: dict[str, tuple[Change, str]] = {
    "corrupt message": (lambda round, client, reply: flipped(reply.pack()), "checksum"),
    "truncated message": (lambda round, client, reply: reply.pack()[:-9], "checksum"),
    "empty message": (lambda round, client, reply: b"", "too short"),
    "message of something else": (lambda round, client, reply: reply.frame, "begins otherwise"),
    "corrupt frame": (lambda round, client, reply: replace(reply, frame=flipped(reply.frame)), "checksum"),
    "truncated frame": (lambda round, client, reply: replace(reply, frame=reply.frame[:-9]), "truncated or altered"),
    "no frame": (lambda round, client, reply: replace(reply, frame=b""), "Truncated"),
    "wrong dimension": (with_frame(frame_of(np.ones(7))), "dimension"),
    "NaN scale": (lambda round, client, reply: replace(reply, frame=with_nan_scale(reply.frame)), "scale is negative"),
    "another s": (with_frame(frame_of(np.ones(D), s=9)), "s = 9, but the round's plan says s = 3"),
    "other segments": (with_frame(aq.compress(np.ones(D), 3, 0, segments=[D // 2, D // 2])), "segments"),
    "float32": (with_frame(aq.encode_float32(np.ones(D, np.float32))), "not made by uniform"),
    "another quantizer": (with_frame(aq.compress(np.ones(D), 2, 0, quantizer="lattice")), "not made by uniform"),
    "another norm": (with_frame(aq.compress(np.ones(D), 2, 0, segments=[D], norm="linf")), "norm 'l2'"),
    "NaN loss": (lambda round, client, reply: replace(reply, loss=math.nan), "diverged"),
    "buffers from nowhere": (lambda round, client, reply: replace(reply, buffers=b"??"), "buffers"),
    "others from nowhere": (lambda round, client, reply: replace(reply, others=b"??"), "have 2 bytes, expected 0"),
    "no examples": (lambda round, client, reply: replace(reply, examples=0), "has 0 examples"),
    "another round": (lambda round, client, reply: replace(reply, round=4), "answers round 4, but this is round 0"),
}


def only_for_client_1(change: Change) -> Change:
    return lambda round, client, reply: change(round, client, reply) if client == 1 else reply


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused_with_its_reason_and_a_better_reply_counts(fault: str) -> None:
    change, words = FAULTS[fault]
    run, models = federation(D, min_clients=2), []
    replies = {c: run.clients[c].reply(run.clients[c].open(order) + c, 0.5) for c, order in run.server.open().items()}
    bad: Any = change(0, 1, reply_of(run.clients[1], replies[1]))
    for better in (False, True):
        server = aq.Server.restore(run.server.state())
        with pytest.raises(aq.Refused):
            server.receive(1, bad if isinstance(bad, bytes) else bad.pack())
        assert words in server.missing[1]
        for client in (0, 1, 2) if better else (0, 2):
            server.receive(client, replies[client])
        closed = server.close()
        assert set(closed.facts.get("missing", ())) == (set() if better else {1})
        models.append(closed.weights)
    counted = [aq.decode(reply_of(run.clients[c], replies[c]).frame).dequantize().astype(np.float64) for c in range(3)]
    p = np.array(EXAMPLES) / sum(EXAMPLES)
    np.testing.assert_allclose(models[1], p @ counted, atol=1e-6)
    np.testing.assert_allclose(models[0], (p[0] * counted[0] + p[2] * counted[2]) / (p[0] + p[2]), atol=1e-6)


def test_who_was_not_asked_or_has_answered_is_refused() -> None:
    run = federation(D)
    orders = run.server.open()
    reply = run.clients[0].reply(run.clients[0].open(orders[0]) + 1, loss=0.5)
    run.server.receive(0, reply)
    with pytest.raises(aq.Refused, match="answered in this round already"):
        run.server.receive(0, reply)
    with pytest.raises(aq.Refused, match="Client 9 was not asked"):
        run.server.receive(9, reply)


def test_float32_is_not_taken_for_levels_nor_levels_for_float32() -> None:
    run = federation(D, only_for_client_1(with_frame(frame_of(np.ones(D)))), min_clients=2, rule=aq.FullPrecision())
    assert "float32" in run.play()["missing"][1]


LEVELS = [name for name in names() if find(name).traits.follows_rule]


@pytest.mark.parametrize("quantizer", LEVELS)
def test_the_s_of_every_quantizers_frame_is_checked(quantizer: str) -> None:
    s = 6

    def change(round: int, client: int, reply: Reply) -> Reply:
        levels = aq.decode(reply.frame)
        other = aq.compress(
            levels.dequantize(), s, 1, segments=None if find(quantizer).traits.rotates else [D], quantizer=quantizer
        )
        assert aq.decode(other).s == s != levels.s
        return replace(reply, frame=other)

    run = federation(D, only_for_client_1(change), min_clients=2, rule=aq.Fixed(bits=2), quantizer=quantizer)
    expected = levels_for(find(quantizer), Order(0, 3, 0.1, 0), Count(3), (D,), None)[0]  # not 3 for all of them
    assert f"It has s = {s}, but the round's plan says s = {expected}." in run.play()["missing"][1]


@pytest.mark.parametrize("quantizer", names())
def test_the_frame_of_another_quantizer_is_refused(quantizer: str) -> None:
    other = "lattice" if quantizer != "lattice" else "uniform"
    frame = aq.compress(np.ones(D), 1, 0, segments=[D], quantizer=other)
    rule = aq.Fixed(bits=1)
    run = federation(D, only_for_client_1(with_frame(frame)), min_clients=2, rule=rule, quantizer=quantizer, sparsity=4)
    assert f"not made by {quantizer}" in run.play()["missing"][1]


@pytest.mark.parametrize(("limit", "words"), [(100.0, "max_update_norm = 100"), ("5x", "5 times the median")])
def test_an_enormous_update_is_refused(limit: float | str, words: str) -> None:
    enormous = with_frame(frame_of(np.full(D, 1e6)))
    run = federation(D, only_for_client_1(enormous), min_clients=2, max_update_norm=limit)
    assert words in run.play()["missing"][1]
    assert np.abs(run.server.weights).max() < 1


def test_refused_bytes_are_counted() -> None:
    whole = federation(D, only_for_client_1(lambda round, client, reply: reply.pack()), min_clients=2)
    spoiled = federation(D, only_for_client_1(lambda round, client, reply: reply.pack()[:-1]), min_clients=2)
    one, other = whole.play(), spoiled.play()
    assert other["wire_bytes_up"] == one["wire_bytes_up"] - 1
    assert other["payload_bytes_up"] < one["payload_bytes_up"]
