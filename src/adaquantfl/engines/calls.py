"""What every engine asks of its clients, and how a process that plays clients answers.

A call is about the server's present model, which comes as an order's bytes. "train" and "loss" belong to a client;
those of SHARED are about samples that the server has too, and stay on its machine. An engine only carries calls there
and answers back; it asks the server for the order, because it knows which model the other end holds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from ..errors import ModelNeeded, reason_of
from ..private.packet import ORDER, kind_of, speaks
from ..protocol.client import Client, ModelCache
from ..protocol.parcels import Held
from ..protocol.server import Server
from ..training.trainer import Trainer
from .kept import Kept

if TYPE_CHECKING:
    from ..private.client import Client as PrivateClient

SHARED = ("losses", "correct", "test_losses")


@dataclass(frozen=True)
class Call:
    """One question.

    Attributes:
        name: "train", "loss", or one of SHARED.
        client: who is asked; -1 for a SHARED call, which anyone may answer.
        order: what the client is sent, once the carrier has put it in.
        numbers: start and stop of the samples of a SHARED call.
        whole: the client has said that it does not hold the model that its order started from.
    """

    name: str
    client: int
    order: bytes = b""
    numbers: tuple[int, int] = (0, 0)
    whole: bool = False

    def ordered(self, server: Server, holds: bytes | EllipsisType | None = ...) -> Call:
        """The call with its order. holds: the digest of the model at the other end; see `Server.order`."""
        order = server.order(self.client, None if self.whole else holds, evaluate=self.name != "train")
        return replace(self, order=order)


@dataclass(frozen=True)
class Trained:
    """The answer to "train": a client's reply, and how long it took."""

    reply: bytes
    train_seconds: float
    encode_seconds: float


@dataclass(frozen=True)
class Failure:
    """A call that was not answered, and why. model_needed: the client does not hold the model that it starts from."""

    reason: str
    model_needed: bool = False


class Player:
    """Plays clients in one process: their ends of the protocol, and one trainer for all of them.

    secret: signs the replies, where the process plays one client and the server knows its secret.
    """

    def __init__(self, trainer: Trainer, secret: bytes = b"") -> None:
        self.trainer = trainer
        self._secret = secret
        self.models = ModelCache()
        self.kept = Kept()
        self.clients: dict[int, Client] = {}
        self._private_clients: dict[int, PrivateClient] = {}

    def answer(self, call: Call) -> Any:
        """Carry out a call: a number, `Trained`, or a `Failure`. Whatever a user's code raises concerns that call."""
        try:
            if speaks(call.order):
                return self._private(call)
            client = self._client(call.client)
            weights: Any = client.open(call.order, copy=False)
            if call.name == "train":
                return self._train(client, weights)
            if call.name == "loss":
                return self.trainer.loss(call.client, weights)
            assert call.name in SHARED, call.name
            return getattr(self.trainer, call.name)(*call.numbers, weights)
        except ModelNeeded as error:
            return Failure(str(error), model_needed=True)
        except Exception as error:
            return Failure(reason_of(error))

    def _private(self, call: Call) -> Trained:
        """A message of a private round: the first one is to train, the others are about masks."""
        from ..private.client import Client as PrivateClient  # it needs the extra

        began, number = time.perf_counter(), call.client
        if number not in self._private_clients:
            self._private_clients[number] = PrivateClient(number, self.models)
        client = self._private_clients[number]
        if kind_of(call.order) != ORDER:
            return Trained(client.answer(call.order), 0.0, time.perf_counter() - began)
        weights: Any = client.open(call.order, copy=False)
        trained, loss = self.trainer.train(number, weights, client.order.round, client.order.eta)
        done = time.perf_counter()
        return Trained(client.reply(trained, loss), done - began, time.perf_counter() - done)

    def hold(self, held: Held) -> None:
        """A model that this process has by other means than an order."""
        self.models.last = held

    def states(self) -> dict[int, dict[str, Any]]:
        """What each client keeps from round to round, without the model: the server has that."""
        return {number: self.state(number) for number in self.clients if number >= 0}

    def state(self, number: int) -> dict[str, Any]:
        """What one client keeps."""
        return {**self._client(number).state(), "held": None}

    def restore(self, number: int, state: Mapping[str, Any]) -> None:
        """Give it back to the client."""
        state = self.kept.put(number, state)
        self.clients[number] = Client.restore({**state, "number": number}, self.models, self._secret)

    def _client(self, number: int) -> Client:
        if number not in self.clients:
            self.clients[number] = Client(number, self.models, self._secret)
        return self.clients[number]

    def _train(self, client: Client, weights: Any) -> Trained:
        began, order = time.perf_counter(), client.order
        trained, loss = self.trainer.train(client.number, weights, order.round, order.eta)
        done = time.perf_counter()
        reply = client.reply(trained, loss, self.trainer.examples[client.number])
        if client.keeps:
            self.restore(client.number, self.state(client.number))
        return Trained(reply, done - began, time.perf_counter() - done)
