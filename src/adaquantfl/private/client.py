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
from . import modular
from .contributor import Contributor
from .masks import Words
from .modular import (
    LOSS_MOST,
    LOSS_STEP,
    NORM_MOST,
    NORM_STEP,
    OWN,
    Projection,
    RoundPlan,
    fixed_point,
    rounded,
    wrapped,
)
from .noise import skellam
from .packet import DIVERGED, KEYS, MAILBOX, ORDER, SURVIVORS, Packet, kind_of


class Client:
    """One client. Between rounds it remembers the model that it holds, and nothing else.

    number: as which the server knows it, which an order says too. models: shared by several clients of one process, as
    for `aq.Client`.
    """

    def __init__(self, number: int, models: ModelCache | None = None) -> None:
        self.number = number
        self.plain = PlainClient(number, models)  # its end of the protocol for the model
        self._contributor: Contributor | None = None
        self._plan: RoundPlan | None = None
        self._key = self._tensors = 0
        self._update: dict[str, Any] = {}  # what is summed, until it is sent

    @property
    def order(self) -> RoundPlan:
        """What the client was asked last: it has the round and the learning rate."""
        if self._plan is None:
            raise EngineError("The client has no order yet: call open() first.")
        return self._plan

    @property
    def holds(self) -> bytes:
        """The digest of the model that the client holds; empty where it holds none."""
        return self.plain.holds

    def open(self, order: bytes, copy: bool = True, key: int | None = None) -> Weights:
        """The weights to train from. ModelNeeded where the client must be sent the whole model, Refused otherwise.

        copy, key: as for `aq.Client`.
        """
        try:
            packet = Packet.unpack(bytes(order))
            inner, plan, own = packet.of(ORDER, packet.session, None, None, OWN.size)
            weights = self.plain.open(inner, copy)
            self._tensors = len(self.plain.held.layout.lengths)
            self._plan = RoundPlan.unpack(plan, self._tensors)
        except FrameError as error:
            raise Refused(f"The order of a private round cannot be read. {error}") from error
        (told, self.number), self._update = OWN.unpack(own), {}
        self._key = told if key is None else key
        self._contributor = Contributor(self.number, packet.session)
        return weights

    def reply(self, trained: Weights, loss: float, examples: int = 1) -> bytes:
        """Keep the update as whole numbers, and send this round's keys. loss: the mean loss seen in training.

        examples: not told to anybody, since every client counts the same.
        """
        plan, contributor, held = self.order, self._contributor, self.plain.held
        if contributor is None or contributor.done:
            raise EngineError("The client has replied already: call open() with a new order first.")
        after, update = self.plain.update_of(trained)
        if update is None or not np.isfinite(loss):
            return Packet(DIVERGED, contributor.session).pack()
        lengths = held.layout.lengths
        projection = Projection(plan, lengths)
        steps = projection.steps
        numbers, clipped = rounded(projection.of(update), plan, steps, self._key)
        if plan.variance:
            numbers = numbers + skellam(len(numbers), plan.variance)
        what = modular.words(plan, len(numbers), len(lengths), held.layout.buffers)
        facts = np.zeros(0, dtype="<u8")
        if not plan.noisy:
            edges = np.concatenate([[0], np.cumsum(lengths)[:-1]])
            squares = np.add.reduceat(np.square(update, dtype=np.float64), edges) / np.array(lengths)
            facts = np.concatenate([
                fixed_point(loss, LOSS_STEP, LOSS_MOST),
                fixed_point(clipped, 1.0, 2.0**40),
                fixed_point(squares / np.square(plan.steps), NORM_STEP, NORM_MOST),
                fixed_point(after.buffers, modular.BUFFER_STEP, modular.BUFFER_MOST),
            ])  # fmt: skip
        self._update = {"values": wrapped(numbers, what), "facts": facts, "bits": what.bits}
        return contributor.advertise()

    def answer(self, message: bytes) -> bytes:
        """Return the reply to a later message of the round. Refused where it asks for what a client must not tell."""
        contributor = self._contributor
        if contributor is None:
            raise Refused("No private round is open here.")
        message = bytes(message)
        try:
            Packet.unpack(message)
            kind = kind_of(message)
            if kind == KEYS:
                return contributor.share(message)
            if kind == MAILBOX:
                values, facts = self._update["values"], self._update["facts"]
                what = Words(len(values), self._update["bits"], len(facts))
                reply = contributor.mask(message, what, values, facts)
                self._update = {}
                return reply
            if kind == SURVIVORS:
                reply, self._contributor = contributor.reveal(message), None
                return reply
            raise FrameError(f"Message {kind} is not one that a client answers.")
        except FrameError as error:
            raise Refused(f"Client {self.number} does not answer. {error}") from error

    def state(self) -> dict[str, Any]:
        """All that the client remembers as a plain tree, also in the middle of a round.

        >>> Client.restore(Client(3).state()).number
        3
        """
        open_round = self._contributor and {
            "tensors": self._tensors,
            "contributor": self._contributor.tree(), "plan": self.order.pack(), "key": str(self._key), **self._update,
        }  # fmt: skip
        return {"number": self.number, "plain": self.plain.state(), "round": open_round}

    @staticmethod
    def restore(tree: Mapping[str, Any], models: ModelCache | None = None) -> Client:
        """The way back. What a client does after it has replied needs the `round` alone: `plain` may be None then."""
        client = Client(int(tree["number"]), models)
        if tree["plain"] is not None:
            client.plain = PlainClient.restore(tree["plain"], models)
        if (saved := tree["round"]) is not None:
            client._contributor, client._key = Contributor.of(saved["contributor"]), int(saved["key"])
            client._tensors = int(saved["tensors"])
            client._plan = RoundPlan.unpack(saved["plan"], client._tensors)
            client._update = {name: saved[name] for name in ("values", "facts", "bits") if name in saved}
        return client
