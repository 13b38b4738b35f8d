"""The gloo engine, the server's side: who is asked what, and who is waited for until when."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from torch.distributed import Store

from ...protocol.downlink import Downlink, digest_of
from ...protocol.messages import Model
from ...runs.config import Config
from ..calls import SHARED, Call, CallEngine, Failure
from .client import JOIN_SECONDS, RUN, Keys, announcement
from .crew import Crew
from .link import Answered, Door, Event, Joined, Link, Lost, Question

_LOOK_SECONDS = 0.2  # between looks at those that have not come yet
_ENDING_SECONDS = 5.0


@dataclass(frozen=True)
class _Asked:
    """A call that a client has not answered yet."""

    number: int
    what: str
    deadline: float

    @property
    def overdue(self) -> bool:
        return time.monotonic() >= self.deadline


class GlooEngine(CallEngine):
    """Clients are processes that come to the store; see `Engine`.

    crew: the clients' processes, where they are ours. at_once: how many may work at the same time, where they share
    their cores. A client that has not answered by its deadline is not waited for again until it has.
    """

    name = "gloo"

    def __init__(self, config: Config, store: Store, crew: Crew | None = None, at_once: int | None = None) -> None:
        super().__init__(config)
        self.store = store
        self._crew = crew
        self._at_once = at_once or config.clients
        self._links: dict[int, Link] = {}
        self._asked: dict[Link, _Asked] = {}
        self._questions = 0
        self._expected = set(range(config.clients))
        self._join_deadline = time.monotonic() + JOIN_SECONDS
        self._lost: dict[int, str] = {}
        self._events: SimpleQueue[Event] = SimpleQueue()
        server = uuid4().hex
        self._door: Door | None = Door(store, Keys(server), config.clients, self._events.put)
        store.set(RUN, announcement(server, config))

    def carry(self, model: Model, calls: list[Call]) -> Iterator[Any]:
        waiting = dict(enumerate(calls))  # the place in the order -> the call
        places: dict[int, int] = {}  # a question's number -> the place of its call
        answers: dict[int, Any] = {}
        way = self._way_to(model)
        self._catch_up()
        answers |= self._ask_who_is_free(model, way, waiting, places)
        for place in range(len(calls)):
            while place not in answers:
                answers |= self._listen(places)
                answers |= self._ask_who_is_free(model, way, waiting, places)
            yield answers.pop(place)  # when clients have work again: the server turns to its own

    def close(self) -> None:
        if self._door is None:
            return
        self._door.close()
        self._door = None
        self._catch_up()
        deadline = time.monotonic() + _ENDING_SECONDS
        for link in self._links.values():
            link.say_goodbye()
        for link in self._links.values():
            link.close(0.0 if link in self._asked else deadline - time.monotonic())
        if self._crew is not None:
            self._crew.close({link.client for link in self._asked}, deadline - time.monotonic())
        self._links, self._asked = {}, {}

    def _way_to(self, model: Model) -> Downlink | None:
        """What leads to this model from earlier ones, if that is known."""
        return self.downlink if self.downlink and self.downlink.digest == digest_of(model) else None

    def _ask_who_is_free(
        self, model: Model, way: Downlink | None, waiting: dict[int, Call], places: dict[int, int]
    ) -> dict[int, Failure]:
        """Send out what can be sent; returns the calls that nobody will answer."""
        failures: dict[int, Failure] = {}
        for place, call in list(waiting.items()):
            taker = self._taker(call)
            if taker is None:
                continue
            del waiting[place]
            if isinstance(taker, Failure):
                failures[place] = taker
            else:
                self._questions += 1
                places[self._questions] = place
                self._ask(taker, Question(self._questions, call, model, way))
        return failures

    def _taker(self, call: Call) -> Link | Failure | None:
        """Who can be asked now; a failure if nobody will; None while that is open."""
        name, arguments = call
        if name in SHARED:  # anybody here; the word of others would have to be trusted
            link = next((link for link in self._links.values() if link not in self._asked), None)
            if self._crew is None or (link is None and not self._working() and not self._expected):
                return Failure("the server has to do it itself.")
        else:
            client = arguments[0]
            if client in self._lost:
                return Failure(self._lost[client])
            link = self._links.get(client)
        question = self._asked.get(link) if link else None
        if question is not None and question.overdue:
            return Failure(f"still busy with {question.what}; it takes part again when it has answered.")
        return link if question is None and self._working() < self._at_once else None

    def _ask(self, link: Link, question: Question) -> None:
        name, arguments = question.call
        what = f"round {arguments[1].round + 1}" if name == "train" else "an evaluation"
        self._asked[link] = _Asked(question.number, what, time.monotonic() + self.config.round_timeout)
        link.ask(question)

    def _working(self) -> int:
        return sum(not question.overdue for question in self._asked.values())

    def _listen(self, places: dict[int, int]) -> dict[int, Any]:
        """Wait for news, at most to the next deadline; returns what it means for the calls."""
        answers = {}
        now = time.monotonic()
        deadlines = [question.deadline for question in self._asked.values() if question.deadline > now]
        if self._expected or not deadlines:
            deadlines.append(now + _LOOK_SECONDS)
        try:
            number, answer = self._take_in(self._events.get(timeout=min(deadlines) - now))
            if number in places:  # not so where the call was given up
                answers[places.pop(number)] = answer
        except Empty:
            pass
        for question in self._asked.values():
            if question.overdue and question.number in places:
                reason = f"no answer within round_timeout = {self.config.round_timeout:g} s."
                answers[places.pop(question.number)] = Failure(reason)
        self._give_up_on_absent()
        return answers

    def _catch_up(self) -> None:
        """Take in what happened since the last call was answered."""
        while not self._events.empty():
            self._take_in(self._events.get())

    def _take_in(self, event: Event) -> tuple[int, Any]:
        """Note who is there and free; returns a question's number (0: none) and its answer."""
        question = self._asked.pop(event.link, None)
        number = question.number if question else 0
        client = event.link.client
        if isinstance(event, Answered):
            return number, event.answer
        if isinstance(event, Joined):
            former = self._links.get(client)
            self._links[client] = event.link
            self._expected.discard(client)
            self._lost.pop(client, None)
            if former is None:
                return 0, None
            question = self._asked.pop(former, None)
            former.close()
            return question.number if question else 0, Failure("it was started anew in mid-round.")
        if self._links.get(client) is event.link:
            del self._links[client]
            self._lost[client] = self._why_lost(event)
        return number, Failure(self._lost.get(client, "its connection was replaced by a new one."))

    def _why_lost(self, event: Lost) -> str:
        if event.reason:
            return event.reason
        ended = self._crew.ended(event.link.client, _ENDING_SECONDS) if self._crew else None
        if ended is not None:
            return f"its process has ended ({ended})."
        return "its connection is lost; it can be started again and joins in from then on."

    def _give_up_on_absent(self) -> None:
        for client in list(self._expected):
            ended = self._crew.ended(client) if self._crew else None
            if ended is not None:
                self._lost[client] = f"its process ended before it joined ({ended})."
            elif time.monotonic() > self._join_deadline:
                self._lost[client] = f"it did not join within {JOIN_SECONDS:g} s."
            else:
                continue
            self._expected.discard(client)
