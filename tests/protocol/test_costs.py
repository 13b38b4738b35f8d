"""What reading a reply, an order or a state may take, whatever its sender writes: the table in
docs/security.md."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl import checkpoint
from adaquantfl.codecs.varints import varint
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.parcels import _PARCEL, _STEP, MOST_FRAMES, untouched
from support.costs import allowed, most_taken

D, BUFFERS, OTHERS = 400_000, 50_000, 50_000
ALL = D + BUFFERS + OTHERS
TINY = 2_000  # elements of models whose messages are hostile by something else than their size
RULES = {"2 levels": (aq.Fixed(bits=1), "uniform"), "most levels": (aq.Fixed(bits=16), "centroid")}
HUGE = (2**31, 2**40, 2**63 - 1)


def model(elements: int) -> dict[str, Any]:
    """Three quarters of it quantized; the rest travels as it is, in float32 and in float64."""
    rng = np.random.default_rng(elements)
    return {
        "w": rng.standard_normal(elements * D // ALL).astype(np.float32),
        "running_var": np.ones(elements * BUFFERS // ALL, np.float32),
        "n.running_var": np.ones(elements * OTHERS // ALL, np.float64),
    }


def server_of(elements: int = ALL, rule: str = "2 levels", **settings: Any) -> aq.Server:
    chosen, quantizer = RULES[rule]
    return aq.Server(model(elements), rule=chosen, quantizer=quantizer, downlink="exact", min_clients=1, **settings)


def trained(client: aq.Client, order: bytes) -> bytes:
    """A reply that moves everything."""
    given: Any = client.open(order)
    return client.reply({name: array * array.dtype.type(1.01) for name, array in given.items()}, loss=1.0)


def expect(kind: str, size: int, elements: int, work: Callable[[], object]) -> None:
    taken, most = most_taken(work), allowed(kind, size, elements)
    assert taken <= most, f"{kind} of {size:,} bytes took {taken:,} bytes for {elements:,} elements, above {most:,}"


def sealed(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4, "little")


# ------------------------------------------------------------------------------------------------ replies


@pytest.mark.parametrize(("rule", "limit"), [("2 levels", 0), ("most levels", "10x")])
def test_a_reply_of_a_large_model(rule: str, limit: float | str) -> None:
    server = server_of(rule=rule, max_update_norm=limit)
    reply = trained(aq.Client(0), server.open([0, 1])[0])
    expect("a reply", len(reply), ALL, lambda: server.receive(0, reply))
    assert list(server.missing) == [1]


def hostile_replies(reply: Reply) -> dict[str, bytes]:
    packed, more = reply.pack(), bytes(3_000_000)
    cases = {name: replace(reply, **{name: more}).pack() for name in ("frame", "buffers", "others")}
    head = packed[:16] + b"\0\1"  # round 0, one example, then lengths that are not there
    cases |= {f"a part of {size:,} bytes": sealed(head + varint(size)) for size in (2**21, 2**31, 2**34)}
    cases["a deflate bomb as its frame"] = replace(reply, frame=zlib.compress(more)).pack()
    return cases


@pytest.mark.parametrize("case", hostile_replies(Reply(0, 1.0, 1, b"x")))
def test_a_hostile_reply(case: str) -> None:
    server = server_of(TINY, max_update_norm="10x")
    reply = Reply.unpack(trained(aq.Client(0), server.open([0])[0]))
    data = hostile_replies(reply)[case]
    with pytest.raises(aq.Refused):
        server.receive(0, data)
    expect("a reply", len(data), TINY, lambda: server.receive(0, data))


# ------------------------------------------------------------------------------------------------- orders


@pytest.mark.parametrize("rule", RULES)
def test_an_order_of_a_large_model_and_the_next_one(rule: str) -> None:
    server, client = server_of(rule=rule), aq.Client(0)
    for whole in (True, False):
        order = server.open([0])[0]
        assert (len(order) > 4 * D) == whole
        expect("an order", len(order), ALL, lambda order=order: client.open(order))  # type: ignore[misc]
        server.receive(0, trained(client, server.order(0)))
        server.close()


@cache
def second_order() -> tuple[dict[str, Any], Order]:
    """The state of a client that holds the first round's model, and its order for the second."""
    server, client = server_of(TINY), aq.Client(0)
    server.receive(0, trained(client, server.open([0])[0]))
    server.close()
    return client.state(), Order.unpack(server.open([0])[0])


def hostile_parcels() -> dict[str, bytes]:
    """Bodies of a parcel, and the number of steps in front of each."""
    exact = untouched(aq.Client.restore(second_order()[0])._models.last.model)  # type: ignore[union-attr]
    part = struct.pack("<dQ", 0.0, len(exact)) + exact
    frame = aq.compress(np.zeros(TINY * D // ALL, np.float32), 1, 1)
    frames = struct.pack("<d", 1.0) + varint(len(frame)) + frame
    bomb = zlib.compress(bytes(10**6))
    difference = b"".join(struct.pack("<Q", len(one)) + one for one in (frame, bomb, bomb, bomb, bomb))
    cases = {f"{count:,} frames": _STEP.pack(0, 1.0, count) + part + frames for count in (50, MOST_FRAMES, 2**32 - 1)}
    cases |= {f"a part of {size:,} bytes": _STEP.pack(1, 1.0, 1) + struct.pack("<dQ", 1.0, size) for size in HUGE}
    cases["deflate bombs"] = _STEP.pack(1, 1.0, 1) + part + struct.pack("<dQ", 1.0, len(difference)) + difference
    return cases


@pytest.mark.parametrize("case", hostile_parcels())
@pytest.mark.parametrize("steps", [1, 2**32 - 1])
def test_an_order_with_a_hostile_parcel(case: str, steps: int) -> None:
    state, order = second_order()
    magic, kind, start, target, _, digest = _PARCEL.unpack_from(order.parcel)
    data = replace(order, parcel=_PARCEL.pack(magic, kind, start, target, steps, digest) + hostile_parcels()[case])
    with pytest.raises(aq.Refused):
        aq.Client.restore(state).open(data.pack())
    client, packed = aq.Client.restore(state), data.pack()
    expect("an order", len(packed), TINY, lambda: client.open(packed))


def worst_frames() -> dict[str, bytes]:
    x = np.random.default_rng(0).standard_normal(D).astype(np.float32)
    return {
        "a segment for two elements": aq.compress(x, 1, 1, "fixed", np.full(D // 2, 2)),
        "the longest table": aq.compress(x, 65_535, 1, "dense", quantizer="centroid"),
        "as many gaps as elements": aq.compress(x, 65_535, 1, "sparse"),
    }


@pytest.mark.parametrize("case", worst_frames())
def test_an_order_that_relays_the_worst_frames(case: str) -> None:
    server, client, frame = server_of(), aq.Client(0), worst_frames()[case]
    order = Order.unpack(server.open([0])[0])
    client.open(order.pack())
    magic, *_ = _PARCEL.unpack_from(order.parcel)
    exact = untouched(server.model)
    body = _STEP.pack(0, 1.0, 1) + struct.pack("<dQ", 0.0, len(exact)) + exact
    body += struct.pack("<d", 1.0) + varint(len(frame)) + frame
    data = replace(order, parcel=_PARCEL.pack(magic, 1, 0, 1, 1, bytes(16)) + body, layout="").pack()
    with pytest.raises(aq.ModelNeeded, match="another digest"):
        client.open(data)
    expect("an order", len(data), ALL, lambda: client.open(data))


# ------------------------------------------------------------------------------------------------- states


def packed(text: str, **arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, meta=np.array(f'{{"format": {checkpoint.FORMAT}, "tree": {text}}}'), **arrays)
    return file.getvalue()


def hostile_states() -> dict[str, bytes]:
    zeros = np.zeros(10**6, np.float32)
    texts = ("[],", "{},", '{"":0},', '"a",', "0,", "[" * 2000, "9" * 4000 + ",", "9" * 5000 + ",")
    cases = {f"{text[:9]} again and again": packed("[" + text * (800_000 // len(text)) + "0]") for text in texts}
    named = ",".join(['{"$array": "x"}'] * 5_000)
    cases["one array, named 5,000 times"] = packed(f"[{named}]", x=zeros)
    file = io.BytesIO()
    np.savez_compressed(file, meta=np.array("{}"), x=zeros)
    cases["compressed"] = file.getvalue()
    for shape in ((2**40,), (2**31, 2**31), (-1,)):
        cases[f"a header that says {shape}"] = _with_header(shape)
    return cases


def _with_header(shape: tuple[int, ...]) -> bytes:
    """A state whose array has a header of this shape and no content."""
    file, npy = io.BytesIO(packed('{"$array": "x"}')), io.BytesIO()
    np.lib.format.write_array_header_1_0(npy, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("x.npy", npy.getvalue())
    return file.getvalue()


@pytest.mark.parametrize("case", hostile_states())
def test_the_bytes_of_a_state(case: str) -> None:
    data = hostile_states()[case]
    expect("a state", len(data), 0, lambda: checkpoint.unpack(data))


def test_the_state_of_a_large_model() -> None:
    server, client = server_of(), aq.Client(0)
    server.receive(0, trained(client, server.open([0, 1])[0]))
    for restore, tree in ((aq.Server.restore, server.state()), (aq.Client.restore, client.state())):
        data = checkpoint.pack(tree)
        expect("a state", len(data), ALL, lambda read=restore, data=data: read(checkpoint.unpack(data)))  # type: ignore[misc]
        assert checkpoint.pack(restore(checkpoint.unpack(data)).state()) == data, "it writes the bytes that it read"


@pytest.mark.parametrize("path", ["held.model.others", "held.digest", "held.layout", "order", "remainder.value"])
def test_a_number_in_place_of_bytes_or_arrays_takes_nothing(path: str) -> None:
    tree = json.loads(json.dumps(second_order()[0], default=lambda value: np.asarray(bytearray(value)).tolist()))
    *above, last = path.split(".")
    holder = tree
    for name in above:
        holder = holder[name]
    holder[last] = HUGE[1]
    with pytest.raises(aq.AdaQuantError):
        aq.Client.restore(tree)
    expect("a state", 0, TINY, lambda: aq.Client.restore(tree))
