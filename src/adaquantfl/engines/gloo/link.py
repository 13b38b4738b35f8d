"""The server's end of its connections: a thread for each client asks one thing at a time and reports the answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from torch.distributed import Store

from ...federated.messages import Model
from ..calls import Call
from .client import PING_SECONDS, Keys
from .messages import ANSWER_BYTES, END, PING, AnswerError, decode_answer, encode_call
from .pair import SERVER, Pair, address_facing

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


class Link:
    """The connection to one client."""

    def __init__(self, client: int, pair: Pair, report: Report) -> None:
        self.client = client
        self._pair, self._report = pair, report
        self._questions: SimpleQueue[tuple[int, Call, Model] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"adaquantfl-client-{client}", daemon=True)
        self._thread.start()

    def ask(self, number: int, call: Call, model: Model) -> None:
        """Have the client carry out a call; an event will follow."""
        self._questions.put((number, call, model))

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
        held: Model | None = None  # at the client; the server's models never change, so the same object is the same
        try:
            while True:
                try:
                    question = self._questions.get(timeout=PING_SECONDS)
                except Empty:
                    self._pair.send(encode_call(0, (PING, ())), _WHILE_ASKED)
                    continue
                if question is None:
                    self._pair.send(encode_call(0, (END, ())), _WHILE_ASKED)
                    return
                number, call, model = question
                self._put(number, call, None if model is held else model)
                held = model
                answer = self._hear(number, call, len(model.weights) + len(model.buffers))
                self._report(Answered(self, number, answer))
        except AnswerError as error:
            self._pair.hang_up()
            self._report(Lost(self, str(error)))
        except RuntimeError:  # gloo's, whatever happened to the connection
            self._report(Lost(self))

    def _put(self, number: int, call: Call, model: Model | None) -> None:
        self._pair.send(encode_call(number, call, model), _WHILE_ASKED)
        if model is not None:
            self._pair.send(model.weights, _WHILE_ASKED)
            if len(model.buffers):
                self._pair.send(model.buffers, _WHILE_ASKED)

    def _hear(self, number: int, call: Call, elements: int) -> Any:
        header = decode_answer(self._pair.receive(ANSWER_BYTES, _WHILE_ASKED), number, call, elements)
        body = self._pair.receive(header.size, _WHILE_ASKED) if header.size else b""
        return header.answer(self.client, body)


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
