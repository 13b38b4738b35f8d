"""Rounds between a server and its clients, played for tests: without an engine, or by the local one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import adaquantfl as aq
from adaquantfl.protocol.arrays import Weights
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.state import ServerState

from .frames import whole

if TYPE_CHECKING:
    from adaquantfl.engines.base import Engine
    from adaquantfl.runs.config import Config
    from adaquantfl.runs.loop import Run
    from adaquantfl.runs.state import RunState

EXAMPLES = (10, 20, 30)  # of the three clients of `federation`
Change = Callable[[int, int, Reply], Reply | bytes | str]  # (round, client, reply) -> what arrives; text: why not


def reply_of(client: aq.Client, data: bytes) -> Reply:
    """What a client replied to its last order, with a frame that can be read by itself."""
    held = client._models.last
    assert held is not None
    return whole(Reply.unpack(data), client.order.known(held.layout.lengths))


class Federation:
    """A server with clients whose data are points: client i minimises half the squared distance to its own.

    Their training is one step of gradient descent with noise of their own, a function of round and client alone.
    """

    def __init__(self, server: aq.Server, clients: int = 3, change: Change | None = None) -> None:
        self.server = server
        self.clients = [aq.Client(i) for i in range(clients)]
        self.change = change
        self.replies: dict[int, bytes] = {}  # of the last round, as they arrived
        self.lines: list[dict[str, Any]] = []
        self.states: list[ServerState] = [server.current]

    def play(self, asked: Sequence[int] | None = None, eta: float = 0.1, loss: float | None = None) -> dict[str, Any]:
        """One round; returns what it measured."""
        if asked is None and not self.server.stages.cohort.examples:
            asked = range(len(self.clients))
        self.replies = {}
        for number, order in self.server.open(asked, eta, loss).items():
            self._exchange(number, order)
        self.lines.append(self.server.close().facts)
        self.states.append(self.server.current)
        return self.lines[-1]

    def frame(self, number: int) -> bytes:
        """What a client sent in the last round."""
        return reply_of(self.clients[number], self.replies[number]).frame

    def loss(self, number: int, weights: Weights) -> float:
        """f_i(w)."""
        away = flat(weights) - self._point(number, weights)
        return float(np.mean(away.astype(np.float64) ** 2) / 2)

    def global_loss(self) -> float:
        """f(w) = sum of p_i f_i(w) at the server's model."""
        sizes = np.array([self._examples(i) for i in range(len(self.clients))])
        losses = [self.loss(i, self.server.weights) for i in range(len(self.clients))]
        return float(sizes @ losses / sizes.sum())

    def _exchange(self, number: int, order: bytes) -> None:
        client = self.clients[number]
        try:
            weights = client.open(order)
        except aq.ModelNeeded:
            weights = client.open(self.server.order(number, holds=None))
        trained = self._trained(number, weights, client.order.round, client.order.eta)
        data = client.reply(trained, self.loss(number, weights), self._examples(number))
        arrives = self.change(client.order.round, number, reply_of(client, data)) if self.change else data
        if isinstance(arrives, str):
            self.server.absent(number, arrives)
            return
        self.replies[number] = arrives if isinstance(arrives, bytes) else arrives.pack()
        with suppress(aq.Refused):  # the round's line says why
            self.server.receive(number, self.replies[number])

    def _trained(self, number: int, weights: Weights, round: int, eta: float) -> Weights:
        rng = np.random.default_rng([round, number])
        away = self._point(number, weights) - flat(weights)
        with np.errstate(over="ignore", invalid="ignore"):  # a learning rate may be absurd
            step = eta * (away + 0.1 * rng.standard_normal(len(away)))
            return moved(weights, step.astype(np.float32))

    def _examples(self, number: int) -> int:
        known = self.server.stages.cohort.examples or EXAMPLES
        return known[number % len(known)]

    @staticmethod
    def _point(number: int, weights: Weights) -> np.ndarray:
        return np.random.default_rng(number).laplace(1.0, 0.5, len(flat(weights))).astype(np.float32)


def federation(
    weights: Weights | int = 60, change: Change | None = None, cohort: Cohort | None = None, **settings: Any
) -> Federation:
    """Three clients with EXAMPLES and a server with these settings. weights: a number is a vector of so many zeros."""
    start = np.zeros(weights, dtype=np.float32) if isinstance(weights, int) else weights
    cohort = cohort or Cohort(EXAMPLES, least=settings.pop("min_clients", 0))
    return Federation(aq.Server(start, cohort=cohort, **{"rule": "adaquant", **settings}), len(cohort.examples), change)


def flat(weights: Weights) -> np.ndarray:
    """All arrays of floats end to end."""
    arrays = weights.values() if isinstance(weights, Mapping) else [weights]
    return np.concatenate([np.ravel(array) for array in arrays if array.dtype.kind == "f"]).astype(np.float32)


def moved(weights: Weights, step: np.ndarray) -> Weights:
    """The weights with a step added to what `flat` gives."""
    if not isinstance(weights, Mapping):
        return weights + step
    after, start = {}, 0
    for name, array in weights.items():
        size = array.size if array.dtype.kind == "f" else 0
        after[name] = array + step[start : start + size].reshape(array.shape) if size else array
        start += size
    return after


def altered(engine: type[Engine], change: Change) -> Callable[[Config], Engine]:
    """An engine whose clients' replies are replaced on their way."""
    from adaquantfl.engines.calls import Failure, Trained

    class Altered(engine):  # type: ignore[misc,valid-type]
        def train(self, server: aq.Server, orders: Mapping[int, bytes]) -> Iterator[tuple[int, Trained | Failure]]:
            for client, answer in super().train(server, orders):
                if isinstance(answer, Failure):
                    yield client, answer
                    continue
                known = Order.unpack(orders[client]).known(server.current.layout.lengths)
                arrives = change(server.current.round, client, whole(Reply.unpack(answer.reply), known))
                if isinstance(arrives, str):
                    yield client, Failure(arrives)
                else:
                    yield client, replace(answer, reply=arrives if isinstance(arrives, bytes) else arrives.pack())

    return Altered


class Played:
    """Rounds of a configuration: after each its line, the state of the run and that of the server; the start first."""

    def __init__(self, config: Config, rounds: int, connect: Callable[[Config], Engine] | None = None) -> None:
        from adaquantfl.engines.local import LocalEngine
        from adaquantfl.runs.loop import Run

        self.engine = (connect or LocalEngine)(config)
        self.run: Run = Run(config, self.engine)
        self.lines: list[dict[str, Any]] = []
        self.states: list[RunState] = [self.run.state]
        self.servers: list[ServerState] = [self.run.server.current]
        try:
            for _ in range(rounds):
                self.run.play_round(self.lines.append)
                self.states.append(self.run.state)
                self.servers.append(self.run.server.current)
        finally:
            self.engine.close()
