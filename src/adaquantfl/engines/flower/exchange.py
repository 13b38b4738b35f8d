"""One `carry` over Flower: each client's calls in one message to its node, each answer as soon as it is there."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, MessageType

from ...errors import FrameError
from ..calls import Failure
from .mail import Mail
from .nodes import Nodes
from .records import Questions, read_answers, read_refusal
from .replies import failure_of

_log = logging.getLogger("flwr")
_MARGIN = 5.0  # seconds by which Flower gives a message up after us, so that the reason is ours
_AHEAD = 2  # messages out for each simulated worker: it never idles, and Flower has few of them to search


@dataclass
class _Letter:
    """A message on its way.

    begun: since when its client has been at work on it, as far as we know. whole: it brings the model itself.
    """

    client: int
    node: int
    numbers: list[int]
    begun: float | None
    whole: bool


class Exchange:
    """The messages of one carry. Its owner calls `step` until it is `done`.

    shares: client -> numbers of the calls that its node answers. workers: how many simulated clients work side by
    side; None where every client has a host of its own.
    """

    def __init__(
        self,
        mail: Mail,
        nodes: Nodes,
        questions: Questions,
        shares: dict[int, list[int]],
        timeout: float,
        workers: int | None,
    ) -> None:
        self._mail, self._nodes, self._questions = mail, nodes, questions
        self._unsent, self._out = dict(shares), dict[str, _Letter]()
        self._timeout, self._workers = timeout, workers
        self._began = time.monotonic()
        name, arguments = questions.calls[0]
        self._kind = MessageType.TRAIN if name == "train" else MessageType.EVALUATE
        self._group = str(arguments[1].round + 1) if name == "train" else ""  # Flower's word for a round

    @property
    def done(self) -> bool:
        """No answer is to be expected any more."""
        if self._out or any(client in self._nodes.of for client in self._unsent):
            return False
        return not (self._unsent and self._nodes.asking and time.monotonic() < self._began + self._timeout)

    def step(self) -> Iterator[tuple[int, Any]]:
        """Send what can be sent; the answers that are there, and failures, with the numbers of their calls."""
        self._nodes.refresh()
        self._follow()
        yield from self._send()
        for number, reply in self._mail.receive(self._out).items():
            yield from self._open(reply, self._out.pop(number))
        yield from self._overdue()

    def give_up(self) -> Iterator[tuple[int, Any]]:
        """Failures for the clients that have no node."""
        for client, numbers in self._unsent.items():
            yield from ((number, Failure(self._nodes.lost(client))) for number in numbers)

    def close(self) -> None:
        """Nobody waits for the rest."""
        self._mail.forget(self._out)

    def _follow(self) -> None:
        """A node that died and came back has another id: what its client was asked is asked there again."""
        for number, letter in list(self._out.items()):
            if self._nodes.of.get(letter.client, letter.node) != letter.node:
                self._mail.forget([number])
                self._unsent[letter.client] = self._out.pop(number).numbers

    def _send(self) -> Iterator[tuple[int, Any]]:
        """Send to the clients whose turn it is; failures where Flower does not take the message."""
        room = len(self._unsent) if self._workers is None else _AHEAD * self._workers - len(self._out)
        ready = [client for client in self._unsent if client in self._nodes.of][: max(0, room)]
        contents = {}
        for client in ready:
            node = self._nodes.of[client]
            contents[node] = self._questions.write(self._unsent[client], self._nodes.holds.get(node))
        seconds = self._timeout if self._workers is None else (_AHEAD + 1) * self._timeout
        sent = self._mail.send(self._kind, contents, seconds + _MARGIN, self._group) if contents else {}
        for client in ready:
            node, numbers = self._nodes.of[client], self._unsent.pop(client)
            if node in sent:
                begun, whole = self._began if self._workers is None else None, node not in self._nodes.holds
                self._out[sent[node]] = _Letter(client, node, numbers, begun, whole)
                self._nodes.note(node, None)  # until it has answered
            else:
                failure = Failure("Flower did not take the message to its SuperNode.")
                yield from ((number, failure) for number in numbers)

    def _open(self, reply: Message, letter: _Letter) -> Iterator[tuple[int, Any]]:
        answers: list[Any]
        try:
            if reply.has_error():
                answers = [failure_of(reply.error)] * len(letter.numbers)
            elif refusal := read_refusal(reply.content):
                if not letter.whole:
                    _log.warning("Client %d gets the model itself: %s", letter.client, refusal)
                    self._unsent[letter.client] = letter.numbers
                    return
                answers = [Failure(f"it refused the model itself: {refusal}")] * len(letter.numbers)
            else:
                answers = read_answers(reply.content, [self._questions.calls[number] for number in letter.numbers])
                self._nodes.note(letter.node, self._questions.round)
        except FrameError as error:
            answers = [Failure(f"its message was refused. {error}")] * len(letter.numbers)
        yield from zip(letter.numbers, answers, strict=True)

    def _overdue(self) -> Iterator[tuple[int, Any]]:
        now = time.monotonic()
        for letter in list(self._out.values())[: self._workers]:  # simulated workers take them in order
            letter.begun = letter.begun or now
        for number, letter in list(self._out.items()):
            if letter.begun is not None and now > letter.begun + self._timeout:
                self._mail.forget([number])
                failure = Failure(f"no answer within round_timeout = {self._timeout:g} s.")
                yield from ((call, failure) for call in self._out.pop(number).numbers)
