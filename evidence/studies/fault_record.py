"""What a run with faults did, and the same run without them: who counted in each round, and what each client trained.

The server's half: a server that nothing happens to is given the same replies, in client order. The clients' half: a
client that nothing happens to except the restores is given the same whole models, once each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import adaquantfl as aq
from adaquantfl.protocol.messages import Order
from adaquantfl.protocol.parcels import Held, Log, digest_of

COMPARED = ("round", "s", "round_loss", "undone", "clients", "paper_bits", "payload_bytes_up")


class Violation(AssertionError):
    """An invariant of the bench does not hold."""


@dataclass
class PlayedRound:
    """A round as the server saw it. taken: the replies that it accepted; diverged: those that said so."""

    asked: list[int] | None
    eta: float
    loss: float | None
    taken: dict[int, bytes] = field(default_factory=dict)
    diverged: dict[int, bytes] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    digest: bytes = b""


@dataclass(frozen=True)
class Training:
    """A client answered an order. held: the model that it had opened."""

    order: Order
    held: Held
    trained: Any
    loss: float
    examples: int
    reply: bytes


@dataclass(frozen=True)
class Restored:
    """A client was killed, and is what it was after this many trainings; 0 is a client that knows nothing."""

    trainings: int


ClientEvent = Training | Restored


def check_server(fresh: aq.Server, rounds: list[PlayedRound]) -> None:
    """The same replies on a server without faults: the same model after every round, bit for bit."""
    for number, played in enumerate(rounds):
        for client in fresh.open(played.asked, played.eta, played.loss):
            for data in (played.diverged.get(client), played.taken.get(client)):
                try:
                    if data is not None:
                        fresh.receive(client, data)
                except aq.Refused:
                    if data != played.diverged.get(client):
                        raise
        facts = fresh.close().facts
        if digest_of(fresh.model) != played.digest:
            raise Violation(f"round {number} leads to another model than without faults")
        for name in COMPARED:
            if facts.get(name) != played.facts.get(name):
                raise Violation(f"round {number}: {name} is {played.facts.get(name)}, {facts.get(name)} without faults")
        for name in ("wire_bytes_up", "wire_bytes_down"):
            if facts[name] > played.facts[name]:
                raise Violation(f"round {number}: {name} is {played.facts[name]}, {facts[name]} without faults")


def check_client(number: int, secret: bytes, events: list[ClientEvent]) -> None:
    """The same trainings on a client without faults: the same replies, bit for bit."""
    client = aq.Client(number, secret=secret)
    states: list[Mapping[str, Any]] = [client.state()]
    for place, event in enumerate(events):
        if isinstance(event, Restored):
            client = aq.Client.restore(states[event.trainings], secret=secret)
            continue
        previous = events[place - 1] if place else None
        again = isinstance(previous, Training) and _same_order(previous, event)
        if not again:  # an order that came twice is answered twice alike
            client.open(whole_order(event.order, event.held))
            reply = client.reply(event.trained, event.loss, event.examples)
            if reply != event.reply:
                raise Violation(f"client {number} answered round {event.order.round} otherwise than without faults")
        states.append(client.state())


def whole_order(order: Order, held: Held) -> bytes:
    """The order with the whole model."""
    parcel = Log(held.round, held.digest).parcel(None, held.model)
    return replace(order, layout=held.layout.to_json(), parcel=parcel).pack()


def _same_order(one: Training, other: Training) -> bool:
    return (one.order, one.held.digest, one.reply) == (other.order, other.held.digest, other.reply)
