"""The server's end of its connections: a thread for each client asks one thing at a time and reports the answer."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from torch.distributed import Store

from ...protocol.downlink import Downlink
from ...protocol.messages import Model, Vector
from ..calls import Call
from .client import PING_SECONDS, Keys
from .messages import ANSWER_BYTES, END, PING, AnswerError, Follows, Refusal, decode_answer, encode_call
from .pair import SERVER, Pair, address_facing

_log = logging.getLogger("adaquantfl")
_A_WORD = 10.0  # seconds for a few bytes to somebody who listens; gloo waits them out if the connection was just ended
_WHILE_ASKED = 7 * 86_400.0  # seconds; the deadlines that matter are the engine's, this one ends the connection
_DOOR_SECONDS = 0.1


@dataclass(frozen=True)
class Joined:
    """A client has come."""

    link: Link


@dataclass(frozen=True)
class Answered:
    """A client has answered call `number` of its link."""

    link: Link
    number: int
    answer: Any


@dataclass(frozen=True)
class Lost:
    """A connection is over. reason: what the client did; empty where it just closed."""

    link: Link
    reason: str = ""


Event = Joined | Answered | Lost
Report = Callable[[Event], None]


@dataclass(frozen=True)
class Question:
    """A call about a model. way: what leads to that model, where the server keeps it."""

    number: int
    call: Call
    model: Model
    way: Downlink | None


class Link:
    """The connection to one client."""

    def __init__(self, client: int, pair: Pair, report: Report) -> None:
        self.client = client
        self._pair, self._report = pair, report
        self._held: Model | None = None  # at the client; models never change, so the same object is the same model
        self._held_round: int | None = None  # its round, where the server keeps what leads on from it
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"adaquantfl-client-{client}", daemon=True)
        self._thread.start()

    def ask(self, question: Question) -> None:
        """Have the client carry out a call; an event will follow."""
        self._questions.put(question)

    def say_goodbye(self) -> None:
        """Tell the client that the run is over, when it has answered what it was asked."""
        self._questions.put(None)

    def close(self, patience: float = 0.0) -> None:
        """End the connection. patience: seconds for the goodbye."""
        self._thread.join(max(0.0, patience))
        if self._thread.is_alive():
            self.say_goodbye()
            self._pair.hang_up()
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                try:
                    question = self._questions.get(timeout=PING_SECONDS)
                except Empty:
                    self._pair.send(encode_call(0, (PING, ())), _A_WORD)
                    continue
                if question is None:
                    self._pair.send(encode_call(0, (END, ())), _A_WORD)
                    return
                self._report(Answered(self, question.number, self._put(question)))
                del question  # and with it the model, while there is nothing to do
        except AnswerError as error:
            self._pair.hang_up()
            self._report(Lost(self, str(error)))
        except RuntimeError:  # gloo's, whatever happened to the connection
            self._report(Lost(self))

    def _put(self, question: Question) -> Any:
        """The client's answer; if it refuses what leads to the model, it gets the model."""
        self._send(question)
        answer = self._hear(question)
        if isinstance(answer, Refusal):
            _log.warning("Client %d gets the model itself: %s", self.client, answer.reason)
            self._held = self._held_round = None
            self._send(question)
            answer = self._hear(question)
            if isinstance(answer, Refusal):
                raise AnswerError(f"it refused the model itself: {answer.reason}")
        return answer

    def _send(self, question: Question) -> None:
        model, way = question.model, question.way
        parts: list[bytes | Vector] = []
        round = way.round if way else 0
        follows = Follows(round)
        if model is not self._held:
            if way is not None and way.size(self._held_round, model) < way.size(None, model):
                parts = [way.parcel(self._held_round, model)]
                follows = Follows(round, parcel=len(parts[0]))
            else:
                parts = [model.weights, model.buffers]
                follows = Follows(round, len(model.weights), len(model.buffers))
        for part in (encode_call(question.number, question.call, follows), *parts):
            if len(part):
                self._pair.send(part, _WHILE_ASKED)
        self._held, self._held_round = model, way.round if way else None

    def _hear(self, question: Question) -> Any:
        elements = len(question.model.weights) + len(question.model.buffers)
        header = self._pair.receive(ANSWER_BYTES, _WHILE_ASKED)
        announced = decode_answer(header, question.number, question.call, elements)
        body = self._pair.receive(announced.size, _WHILE_ASKED) if announced.size else b""
        return announced.answer(self.client, body)


class Door:
    """Lets clients in, whenever they come: at the start, or anew in the place of one that was lost."""

    def __init__(self, store: Store, keys: Keys, clients: int, report: Report) -> None:
        self._store, self._keys, self._clients, self._report = store, keys, clients, report
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="adaquantfl-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(10 * _DOOR_SECONDS)  # longer only where a client is lost while it is let in

    def _run(self) -> None:
        number = 1
        while not self._closed.wait(_DOOR_SECONDS):
            try:
                while self._store.check([self._keys.arrival(number)]):  # `wait` warns whenever nobody comes
                    self._let_in(number)
                    number += 1
            except RuntimeError:  # the launcher's store is gone: nobody can come any more
                return

    def _let_in(self, number: int) -> None:
        try:
            client, address = json.loads(self._store.get(self._keys.arrival(number)))
            ours = address_facing(address)
            self._store.set(self._keys.welcome(number), "")
            pair = Pair(self._store, self._keys.pair(number), SERVER, ours)
        except Exception:  # gone again, or no client of ours: the next one must find the door open
            return
        if self._closed.is_set() or client not in range(self._clients):
            pair.hang_up()
        else:
            self._report(Joined(Link(client, pair, self._report)))
