"""Orders, replies and parcels of running federations, mutated field by field, and what must hold for each of them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.errors import AdaQuantError, FrameError
from adaquantfl.protocol.arrays import Layout
from adaquantfl.protocol.downlink import Late
from adaquantfl.protocol.messages import TARGETS, Order, Reply
from adaquantfl.protocol.parcels import _PARCEL, _WHOLE, Held, digest_of, open_parcel, walk
from adaquantfl.protocol.uplink import MOST_VALUE
from support.frames import whole as with_whole_frame

from . import frames
from .oracles import Finding

CLIENTS = 3
REPLIED = 0.1  # of the orders that are read: the client trains and replies
CLOSED = 0.02  # of the replies that are taken: the round is closed with it
LOSSES = (0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, float("inf"), float("nan"))
COUNTS = (0, 1, 2, 127, 128, 2**31, 2**32 - 1, 2**32, 2**35 - 1)
NUMBERS = (0.0, -1.0, 0.5, 1.0, 2.0, 3.7, 1e-300, 65535.0, 65536.0, 1e300)
TEXTS = (
    "",
    "[]",
    "[true,[]]",
    '[true,[["","float32",[4],"q"]]]',
    '[false,[["w","float64",[-1],"q"]]]',
    "[1",
    "null",
    '[true,[["","float32",[4294967296,4294967296],"q"],["b","float32",[33],"q"]]]',
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {"rule": aq.AdaQuant(s0=2), "downlink": "exact"},
    {"rule": aq.Fixed(bits=2), "quantizer": "nearest", "downlink": Late(), "max_update_norm": 50.0},
    {"rule": aq.FullPrecision(), "downlink": "exact"},
    {"rule": aq.Auto(), "quantizer": "uniform", "downlink": "exact"},
    {"rule": aq.Fixed(bits=3), "quantizer": "centroid", "downlink": "model", "max_update_norm": "10x"},
    {"rule": aq.Fixed(bits=1), "quantizer": "centroid", "downlink": "exact", "columns": 400},  # relays short frames
)


@dataclass
class Setup:
    """A federation in the middle of its third round: nobody has answered.

    Attributes:
        state, heard, closed: of the server now, with all replies, and after the round.
        clients: their states, after their replies.
    """

    server: aq.Server
    state: dict[str, Any]
    heard: dict[str, Any]
    closed: dict[str, Any]
    clients: list[dict[str, Any]]
    orders: list[Order]
    held: list[Held]
    replies: list[Reply]  # with whole frames
    short: list[Reply]  # as they were sent
    parts: list[frames.Parts]


def setup(settings: dict[str, Any]) -> Setup:
    """Two rounds of a small model, and the third opened. columns: of its matrix; if few, it is smaller than a step."""
    settings = dict(settings)
    shape = (6, settings.pop("columns", 4))
    model = {
        "a": np.zeros(shape, np.float32),
        "b": np.zeros(9, np.float32),
        "x.running_mean": np.ones(2, np.float32),
        "n": np.zeros(1, np.int64),
    }
    server = aq.Server(model, min_clients=1, seed=4, **settings)
    ends = [aq.Client(number) for number in range(CLIENTS)]
    held: list[Held] = []
    for round in range(3):
        orders = server.open(list(range(CLIENTS)), eta=0.1, loss=1.0)
        held = [end._models.last for end in ends] if round else []  # type: ignore[misc]  # before the third order
        replies = []
        for number, order in orders.items():
            weights: Any = ends[number].open(order)
            moved = {name: array + np.float32(0.1 * number + 0.3) for name, array in weights.items() if name != "n"}
            moved["a"] = moved["a"] * np.linspace(-1, 1, moved["a"].size, dtype=np.float32).reshape(shape)
            replies.append(ends[number].reply({**moved, "n": weights["n"] + 1}, loss=1.0, examples=number + 1))
        if round < 2:
            for number, reply in enumerate(replies):
                server.receive(number, reply)
            server.close()
    lengths, asked = server.current.layout.lengths, [Order.unpack(order) for order in orders.values()]
    short = [Reply.unpack(reply) for reply in replies]
    whole = [with_whole_frame(one, order.known(lengths)) for one, order in zip(short, asked, strict=True)]
    parts = [frames.take_apart(one.frame) for one in whole]
    state, other = server.state(), aq.Server.restore(server.state())
    for number, reply in enumerate(replies):
        other.receive(number, reply)
    heard = other.state()
    other.close()
    kept = [end.state() for end in ends]
    return Setup(server, state, heard, other.state(), kept, asked, held, whole, short, parts)


class MessageOracle:
    """Mutates and reads messages. Each method runs one, and returns the reason of the refusal or None."""

    def __init__(self, chance: Random, mutator: frames.Mutator, setups: list[Setup]) -> None:
        self.chance, self.mutator, self.setups = chance, mutator, setups
        self.data = b""  # the last message, for a finding
        self.runs: tuple[Callable[[], str | None], ...] = (self.reply, self.reply, self.order, self.parcel)

    def reply(self) -> str | None:
        """A reply at a server in the middle of a round."""
        at = self.chance.choice(self.setups)
        number = self.chance.randrange(CLIENTS)
        data = self.data = self._mutated_reply(at, number)
        opened = at.server._round
        assert opened is not None
        try:
            at.server.receive(number, data)
        except aq.Refused as error:
            if opened.heard or number not in opened.missing or number in opened.norms:
                raise Finding("a refused reply counts") from None
            return str(error)
        heard = opened.heard.pop(number)
        opened.norms.pop(number, None)
        layout = at.server.current.layout
        moved = heard.decoded(layout, at.server.model)
        if not layout.is_finite(moved) or heard.largest[0] > MOST_VALUE:
            raise Finding("an accepted reply has a value that is not finite, or too large")
        if self.chance.random() < CLOSED:
            self._closed(at, number, data)
        return None

    def order(self) -> str | None:
        """An order at a client that holds the model of the round before, or none."""
        at = self.chance.choice(self.setups)
        number = self.chance.randrange(CLIENTS)
        data = self.data = self._mutated_order(at.orders[number])
        client = aq.Client(number)
        client._models.last = before = at.held[number] if self.chance.random() < 0.8 else None
        try:
            weights: Any = client.open(data)
        except aq.Refused as error:
            if client._models.last is not before:
                raise Finding("a refused order changed the client's model") from None
            return str(error)
        self._finite(weights)
        if client.order.evaluate or self.chance.random() >= REPLIED:
            return None
        try:
            client.reply(weights, loss=1.0, examples=3)
        except AdaQuantError as error:
            return f"reply: {error}"
        return None

    def parcel(self) -> str | None:
        """A parcel, sometimes with the digest of what it leads to."""
        at = self.chance.choice(self.setups)
        number = self.chance.randrange(CLIENTS)
        held, layout = at.held[number], at.held[number].layout
        data = self.data = self._mutated_parcel(bytes(at.orders[number].parcel), held)
        try:
            found = open_parcel(data, held, layout)
        except (FrameError, aq.Refused) as error:
            return str(error)
        if not found.layout.is_finite(found.model):
            raise Finding("a parcel leads to a model that is not finite")
        return None

    def _closed(self, at: Setup, number: int, data: bytes) -> None:
        """The round with this reply ends in a finite model."""
        server = aq.Server.restore(at.state)
        server.receive(number, data)
        for other in set(range(CLIENTS)) - {number}:
            server.receive(other, at.replies[other].pack())
        try:
            self._finite(server.close().weights)
            server.open([0, 1], eta=0.1)
        except aq.EngineError:
            return

    def _finite(self, weights: Any) -> None:
        if not all(
            np.isfinite(array).all() for array in (weights.values() if isinstance(weights, dict) else [weights])
        ):
            raise Finding("a weight is not finite")

    def _mutated_reply(self, at: Setup, number: int) -> bytes:
        chance, reply = self.chance, at.replies[number]
        kind = chance.randrange(12)
        if kind >= 10:
            return replace(at.short[number], frame=self.mutator.raw(at.short[number].frame)).pack()
        if kind < 5:
            pool, self.mutator.pool = self.mutator.pool, [at.parts[number]]  # one that fits the round
            parts, _ = self.mutator.mutant()
            self.mutator.pool = pool
            return replace(reply, frame=parts.build()).pack()
        if kind == 5:
            return replace(reply, loss=chance.choice(LOSSES)).pack()
        if kind == 6:
            field = chance.choice(("round", "examples", "order"))
            return replace(reply, **{field: chance.choice(COUNTS) % (2**32 if field == "order" else 2**35)}).pack()
        if kind == 7:
            field = chance.choice(("frame", "buffers", "others"))
            return replace(reply, **{field: self.mutator.raw(getattr(reply, field))}).pack()
        if kind == 8:
            other = chance.choice(chance.choice(self.setups).replies)
            return replace(reply, frame=other.frame).pack()
        return _sealed(self.mutator.raw(reply.pack()[:-4]))

    def _mutated_order(self, order: Order) -> bytes:
        chance = self.chance
        kind = chance.randrange(8)
        if kind == 0:
            data = order.pack()
            head = len(data) - len(order.parcel)
            return _sealed(self.mutator.raw(data[: head - 4])) + order.parcel
        if kind == 1:
            return self.mutator.raw(order.pack())
        if kind == 2:
            return replace(order, parcel=self.mutator.raw(bytes(order.parcel))).pack()
        if kind == 3:
            return replace(order, layout=chance.choice(TEXTS)).pack()
        changes: dict[str, Any] = chance.choice(
            (
                {"s": chance.choice((None, *NUMBERS))},
                {"eta": chance.choice(NUMBERS)},
                {"quantizer": chance.choice(frames.TAGS)},
                {"scope": chance.choice(("whole", "tensor", 1, 2, 7, 2**31))},
                {"codec": chance.choice(("fixed", "dense", "sparse", "unknown", ""))},
                {"target": chance.choice(TARGETS)},
                {"taken_back": tuple(range(chance.randint(1, 255))), "feedback": True},
                {"balanced": True, "feedback": chance.random() < 0.5},
                {"evaluate": True, "round": chance.choice(COUNTS) % 2**32},
            )
        )
        return replace(order, **changes).pack()

    def _mutated_parcel(self, parcel: bytes, held: Held) -> bytes:
        chance = self.chance
        body = parcel[_PARCEL.size :]
        if chance.random() < 0.5:
            body = self.mutator.raw(body)
        magic, kind, start, target, steps, digest = _PARCEL.unpack_from(parcel)
        if chance.random() < 0.3:
            kind = chance.choice((0, 1, 2, 3, 255))
        if chance.random() < 0.3:
            start, target, steps = (chance.choice((given, 0, 1, 2, 2**32 - 1)) for given in (start, target, steps))
        if chance.random() < 0.6:
            digest = _digest_behind(kind, body, steps, held, held.layout)
        return _PARCEL.pack(magic, kind, start, target, steps, digest) + body


def _digest_behind(kind: int, body: bytes, steps: int, held: Held, layout: Layout) -> bytes:
    """The digest that makes a parcel right; zeros where there is none."""
    try:
        if kind != _WHOLE:
            return digest_of(walk(held.model, body, steps, layout))
    except (FrameError, struct.error):
        pass
    return bytes(16)


def _sealed(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4, "little")
