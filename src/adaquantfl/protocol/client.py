"""The client's end of the conversation: an order comes in, weights to train from go out; a reply goes back.

weights = client.open(order)                          bit for bit the server's
reply = client.reply(trained, loss=0.41, examples=600)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..codecs.frame import TILE
from ..codecs.raw import encode_float32
from ..errors import CheckpointError, EngineError, FrameError, Refused
from ..quantizers.choice import drawn_error
from . import trees
from .arrays import Layout, Model, Vector, Weights
from .messages import Order, Reply, sign
from .parcels import Held, open_parcel
from .uplink import MOST_UPDATE_NORM, Remainder, check_order, send

FORMAT = 1


class Client:
    """One client. It remembers the model it holds, and with error feedback what it left out of its updates.

    models: shared by several clients of one process, which then hold one model together: the one opened last. secret:
    bytes that the server knows for this client; replies are signed with it.

    >>> from adaquantfl import Server
    >>> server, client = Server(np.zeros(2, dtype=np.float32)), Client(0)
    >>> weights = client.open(server.open([0])[0])
    >>> server.receive(0, client.reply(weights + np.float32([3, -4]), loss=0.7, examples=100))
    >>> server.close().facts["round_loss"]
    0.7
    """

    def __init__(self, number: int, models: ModelCache | None = None, secret: bytes = b"") -> None:
        self.number = number
        self._secret = secret
        self._models = models or ModelCache()
        self._order: Order | None = None
        self._stream_key = 0
        self._remainder = Remainder()
        self.error: float | None = None  # of the last reply: its noise's share of the update's energy

    @property
    def order(self) -> Order:
        """What the client was asked last."""
        if self._order is None:
            raise EngineError("The client has no order yet: call open() first.")
        return self._order

    @property
    def keeps(self) -> bool:
        """Whether it remembers what it left out of updates."""
        return self._remainder.known

    @property
    def held(self) -> Held:
        """The model that the client holds."""
        if self._models.last is None:
            raise EngineError("The client has no model yet: call open() first.")
        return self._models.last

    @property
    def holds(self) -> bytes:
        """The digest of the model that the client holds; empty where it holds none."""
        return self._models.last.digest if self._models.last else b""

    def open(self, order: bytes, copy: bool = True, key: int | None = None) -> Weights:
        """Return the weights to train from. Raises ModelNeeded if the client needs the whole model, else Refused.

        copy: False gives read-only views, for callers that copy them anyway. key: of the random stream, instead of the
        order's.
        """
        try:
            read = Order.unpack(bytes(order))
            check_order(read)
            layout = Layout.from_json(read.layout) if read.layout else None
            held = open_parcel(read.parcel, self._models.last, layout)
        except FrameError as error:
            raise Refused(f"The order cannot be read. {error}") from error
        self._models.last, self._order = held, replace(read, parcel=b"", layout="")
        self._stream_key = read.key if key is None else key
        return held.layout.join(held.model, copy)

    def reply(self, trained: Weights, loss: float, examples: int = 1, measure_error: bool = False) -> bytes:
        """Return the update as bytes. loss: the mean loss seen in training. examples: how much the client counts.

        measure_error: whether `error` is to be known afterwards, which takes some time.
        """
        self.error = None
        order, held = self.order, self.held
        if order.evaluate:
            raise EngineError("The client was only asked to evaluate the model: there is nothing to reply.")
        if isinstance(examples, bool) or not isinstance(examples, int | np.integer) or not 1 <= examples < 2**32:
            raise EngineError(f"examples = {examples!r}: expected a whole number from 1 to 2^32 - 1.")
        if isinstance(loss, bool) or not isinstance(loss, int | float | np.number):
            raise EngineError(f"loss = {loss!r}: expected a number, the mean loss seen in training.")
        after, update = self.update_of(trained)
        if update is None or not math.isfinite(loss):
            return self._packed(Reply(order.round, math.nan, int(examples)))  # diverged: there is nothing to send
        remainder = self._remainder.before_round(order.round, order.taken_back).of_length(len(update))
        if remainder.value is not None:
            update += remainder.value
        frame, levels = send(update, order, held.layout, measure_error or order.feedback, self._stream_key)  # eq. 4
        if measure_error:
            self.error = 0.0 if levels is None else drawn_error(update, levels)
        buffers = encode_float32(after.buffers) if len(after.buffers) else b""
        if order.feedback and levels is not None:
            levels.take_from(update)
            self._remainder = remainder.after(order.round, update)
        else:
            self._remainder = remainder.all_sent(order.round)
        return self._packed(Reply(order.round, float(loss), int(examples), frame, buffers, after.others))

    def update_of(self, trained: Weights) -> tuple[Model, Vector | None]:
        """The trained model, and the update that leads there, in the same memory; None where training has diverged."""
        held = self.held
        after = held.layout.split(trained, copy=True)
        finite = held.layout.is_finite(after)
        with np.errstate(over="ignore", invalid="ignore"):
            update = np.subtract(after.weights, self._given(held).weights, out=after.weights)
            too_large = not _norm(update) <= MOST_UPDATE_NORM
        return after, None if too_large or not finite else update

    def _packed(self, reply: Reply) -> bytes:
        data = replace(reply, order=self.order.token(self.holds)).pack()
        return sign(data, self._secret) if self._secret else data

    def state(self) -> dict[str, Any]:
        """Return all that the client remembers, as a plain tree.

        >>> Client.restore(Client(3).state()).number
        3
        """
        held, order = self._models.last, self._order
        model = held and {**vars(held), "model": dict(vars(held.model)), "layout": held.layout.to_json()}
        return {
            "format": FORMAT,
            "number": self.number,
            "held": model,
            "order": order.pack() if order else None,
            "stream_key": self._stream_key,
            "remainder": self._remainder.state(),
        }

    @staticmethod
    def restore(tree: Mapping[str, Any], models: ModelCache | None = None, secret: bytes = b"") -> Client:
        """Restore a client from `state()`, except for its secret."""
        try:
            if tree["format"] != FORMAT:
                raise CheckpointError(f"The client's state has format {tree['format']}; this version reads {FORMAT}.")
            client, held = Client(trees.whole_number(tree["number"]), models, secret), tree["held"]
            if held is not None:
                layout = Layout.from_json(held["layout"])
                model, round = trees.model(held["model"], layout), trees.whole_number(held["round"])
                client._models.last = Held(round, model, trees.data(held["digest"]), layout)
            client._order = Order.unpack(trees.data(tree["order"])) if tree["order"] is not None else None
            client._stream_key = trees.whole_number(tree["stream_key"], 2**64)
            client._remainder = Remainder.restore(tree["remainder"])
        except (CheckpointError, MemoryError):
            raise
        except Exception as error:  # a tree that is none raises almost anything
            raise CheckpointError(f"This is not the state of a client ({error!r}).") from error
        return client

    def _given(self, held: Held) -> Model:
        """The model as `open` handed it out: in the arrays' own types."""
        return held.layout.split(held.layout.join(held.model, copy=False)) if held.layout.narrow else held.model


def _norm(update: Vector) -> float:
    """The l2 norm, a tile at a time, and not by BLAS, whose threads wait for each other on a busy machine."""
    tiles = (update[start : start + TILE] for start in range(0, len(update), TILE))
    return math.sqrt(sum(float(np.square(tile, dtype=np.float64).sum()) for tile in tiles))


class ModelCache:
    """The model that a client, or the clients of one process, opened last."""

    def __init__(self) -> None:
        self.last: Held | None = None
