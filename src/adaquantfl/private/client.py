"""A client's end of private rounds: an order comes in, weights to train from go out; then one reply for each message.

weights = client.open(order)                          bit for bit the server's
reply = client.reply(trained, loss=0.41)              keys; the update waits here, as whole numbers
reply = client.answer(message)                        three times: shares, the masked update, revealed shares
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import EngineError, FrameError, Refused
from ..protocol.arrays import Weights
from ..protocol.client import Client as PlainClient
from ..protocol.client import ModelCache
from .contributor import Contributor
from .masks import Words
from .modular import OWN, Projection, RoundPlan, facts_of, mean_squares, rounded
from .noise import skellam
from .packet import DIVERGED, ORDER, REVEALED, Packet


class Client:
    """One client. Between rounds it remembers the model that it holds, and nothing else.

    number: as which the server knows it, which an order says too. models: shared by several clients of one process, as
    for `aq.Client`.
    """

    def __init__(self, number: int, models: ModelCache | None = None) -> None:
        self.number = number
        self.plain = PlainClient(number, models)  # its end of the protocol for the model
        self._plan: RoundPlan | None = None
        self._session, self._key = b"", 0
        self._contributor: Contributor | None = None  # from the reply until the last answer

    @property
    def order(self) -> RoundPlan:
        """What the client was asked last: it has the round and the learning rate."""
        if self._plan is None:
            raise EngineError("The client has no order to reply to: call open() with a new one first.")
        return self._plan

    def open(self, order: bytes, copy: bool = True, key: int | None = None) -> Weights:
        """The weights to train from. ModelNeeded where the client must be sent the whole model, Refused otherwise.

        copy, key: as for `aq.Client`.
        """
        try:
            packet = Packet.unpack(bytes(order))
            inner, plan, own = packet.of(ORDER, packet.session, None, None, OWN.size)
            weights = self.plain.open(inner, copy)
            self._plan = RoundPlan.unpack(plan, len(self.plain.held.layout.lengths))
        except FrameError as error:
            raise Refused(f"The order of a private round cannot be read. {error}") from error
        told, self.number = OWN.unpack(own)
        self._session, self._key, self._contributor = packet.session, told if key is None else key, None
        return weights

    def reply(self, trained: Weights, loss: float, examples: int = 1) -> bytes:
        """Keep the update as whole numbers, and send this round's keys. loss: the mean loss seen in training.

        examples: not told to anybody, since every client counts the same.
        """
        plan, lengths = self.order, self.plain.held.layout.lengths
        after, update = self.plain.update_of(trained)
        self._plan = None
        if update is None or not np.isfinite(loss):
            return Packet(DIVERGED, self._session).pack()
        projection = Projection(plan, lengths)
        numbers, clipped = rounded(projection.of(update), plan, projection.steps, self._key)
        if plan.variance:
            numbers = numbers + skellam(len(numbers), plan.variance)
        facts = np.zeros(0, dtype="<u8")
        if not plan.noisy:
            squares = mean_squares(update, lengths) / np.square(plan.steps)
            facts = facts_of(loss, clipped, squares, after.buffers)
        values = Words(len(numbers), plan.bits, len(facts)).reduced(numbers)
        self._contributor = Contributor(self.number, self._session, plan.bits, values, facts)
        return self._contributor.advertise()

    def answer(self, message: bytes) -> bytes:
        """Return the reply to a later message of the round. Refused where it asks for what a client must not tell."""
        if self._contributor is None:
            raise Refused("No private round is open here.")
        try:
            reply = self._contributor.answer(bytes(message))
        except FrameError as error:
            raise Refused(f"Client {self.number} does not answer. {error}") from error
        if self._contributor.done == REVEALED:
            self._contributor = None
        return reply

    def state(self) -> dict[str, Any]:
        """All that the client remembers as a plain tree, once it has replied or before it has opened an order.

        >>> Client.restore(Client(3).state()).number
        3
        """
        open_round = None if self._contributor is None else dict(vars(self._contributor))
        return {"number": self.number, "plain": self.plain.state(), "round": open_round}

    @staticmethod
    def restore(tree: Mapping[str, Any], models: ModelCache | None = None) -> Client:
        """The way back. What a client does after it has replied needs the `round` alone: `plain` may be None then."""
        client = Client(int(tree["number"]), models)
        if tree["plain"] is not None:
            client.plain = PlainClient.restore(tree["plain"], models)
        if tree["round"] is not None:
            client._contributor = Contributor(**tree["round"])
        return client
