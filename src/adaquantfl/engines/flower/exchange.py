"""One `carry` over Flower: each client's calls in one message to its node, each answer as soon as it is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, MessageType

from ...errors import FrameError
from ...protocol.messages import Order
from ..calls import Failure
from .nodes import Inbox, Nodes, reason_of_error
from .records import Questions, read_answers

Answers = Iterator[tuple[int, Any]]  # with the places of their calls

_TTL_MARGIN = 5.0  # seconds; Flower's timeout is longer than ours, so that our error message is the one users see
_MESSAGES_PER_WORKER = 2  # out at a time in a simulation: a worker never idles, and Flower has few of them to search


@dataclass
class _Pending:
    """A message that was sent. begun: since when its client has worked on it, as far as we know."""

    client: int
    node: int
    places: list[int]
    begun: float | None


class Exchange:
    """The messages of one carry. Its owner calls `step` until it is `done`.

    shares: client -> places of the calls that its node answers. timeout: seconds for a client to answer. workers: how
    many simulated clients work side by side; None where every client has a host of its own.
    """

    def __init__(
        self, inbox: Inbox, nodes: Nodes, questions: Questions, shares: dict[int, list[int]],
        timeout: float, workers: int | None,
    ) -> None:  # fmt: skip
        self._inbox, self._nodes, self._questions = inbox, nodes, questions
        self._unsent, self._out = dict(shares), dict[str, _Pending]()
        self._timeout, self._workers = timeout, workers
        self._began = time.monotonic()
        first = questions.calls[0]
        self._kind = MessageType.TRAIN if first.name == "train" else MessageType.EVALUATE
        self._group = str(Order.unpack(first.order).round + 1) if first.name == "train" else ""  # Flower's rounds

    @property
    def done(self) -> bool:
        """No answer is to be expected any more."""
        if self._out or any(client in self._nodes.of for client in self._unsent):
            return False
        return not (self._unsent and self._nodes.asking and time.monotonic() < self._began + self._timeout)

    def step(self) -> Answers:
        """Send what can be sent; the answers that are there, and failures."""
        self._nodes.refresh()
        self._follow()
        yield from self._send()
        for number, reply in self._inbox.receive(self._out).items():
            pending = self._out.pop(number)
            yield from zip(pending.places, self._open(reply, pending), strict=True)
        yield from self._overdue()

    def give_up(self) -> Answers:
        """Failures for the clients that have no node."""
        for client, places in self._unsent.items():
            yield from _failures(places, self._nodes.lost(client))

    def close(self) -> None:
        """Nobody waits for the rest."""
        self._inbox.forget(self._out)

    def _follow(self) -> None:
        """A node that died and came back has another id: what its client was asked is asked there again."""
        for number, pending in list(self._out.items()):
            if self._nodes.of.get(pending.client, pending.node) != pending.node:
                self._inbox.forget([number])
                self._unsent[pending.client] = self._out.pop(number).places

    def _send(self) -> Answers:
        """Send to the clients whose turn it is; failures where Flower does not take the message."""
        room, seconds, begun = len(self._unsent), self._timeout, self._began
        if self._workers is not None:
            room = max(0, _MESSAGES_PER_WORKER * self._workers - len(self._out))
            seconds = (_MESSAGES_PER_WORKER + 1) * self._timeout
        ready = [client for client in self._unsent if client in self._nodes.of][:room]
        contents = {}
        for client in ready:
            node = self._nodes.of[client]
            contents[node] = self._questions.write(self._unsent[client], self._nodes.holds.get(node, b""))
        sent = self._inbox.send(self._kind, contents, seconds + _TTL_MARGIN, self._group) if contents else {}
        for client in ready:
            node, places = self._nodes.of[client], self._unsent.pop(client)
            self._nodes.note(node, b"")  # until it has answered
            if node in sent:
                self._out[sent[node]] = _Pending(client, node, places, None if self._workers else begun)
            else:
                yield from _failures(places, "Flower did not take the message to its SuperNode.")

    def _open(self, reply: Message, pending: _Pending) -> list[Any]:
        """The answers in a reply, or failures in their place."""
        if reply.has_error():
            return [Failure(reason_of_error(reply.error))] * len(pending.places)
        try:
            answers = read_answers(reply.content, [self._questions.calls[place] for place in pending.places])
        except FrameError as error:
            return [Failure(f"its message was refused. {error}")] * len(pending.places)
        if not any(isinstance(answer, Failure) for answer in answers):
            self._nodes.note(pending.node, self._questions.digest)
        return answers

    def _overdue(self) -> Answers:
        now = time.monotonic()
        for pending in list(self._out.values())[: self._workers]:  # simulated workers take them in order
            pending.begun = pending.begun or now
        for number, pending in list(self._out.items()):
            if pending.begun is not None and now > pending.begun + self._timeout:
                self._inbox.forget([number])
                yield from _failures(
                    self._out.pop(number).places, f"no answer within round_timeout = {self._timeout:g} s."
                )


def _failures(places: list[int], reason: str) -> Answers:
    return ((place, Failure(reason)) for place in places)
