"""The local engine: all clients on this machine, in this process or in a few worker processes of one thread each.

Which worker plays which client does not matter: a reply is a pure function of (config, model, plan, client).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..config import Config
from ..federated.client import Trainer
from ..federated.messages import Evaluation, Model, Plan, Reply
from ..tasks.task import Task
from ..threads import cores
from .pool import Call, Pool

_TEST_SHARD = 1_000  # test samples a call


class LocalEngine:
    """Plays the clients of a configuration; see `Engine`."""

    def __init__(self, config: Config) -> None:
        self.task = Task.of(config)
        self._trainer = Trainer(config, self.task)
        self.federation = self._trainer.federation
        self.workers = min(config.workers or cores(), config.clients)
        self._pool: Pool | None = None
        if self.workers > 1:
            self._pool = Pool(config, self.workers, self.federation.model)

    def train(self, model: Model, plan: Plan) -> Iterator[Reply]:
        yield from self._map(model, [("train", (client, plan)) for client in range(len(self.task.parts))])

    def evaluate(self, model: Model, test: bool = True) -> Evaluation:
        clients = range(len(self.task.parts))
        tests = len(self.task.test.y) if test else 0
        shards = [(start, min(start + _TEST_SHARD, tests)) for start in range(0, tests, _TEST_SHARD)]
        calls: list[Call] = [("loss", (client,)) for client in clients] + [("correct", shard) for shard in shards]
        results = list(self._map(model, calls))
        losses, right = results[: len(clients)], results[len(clients) :]
        loss = sum(p * f for p, f in zip(self.federation.weights, losses, strict=True))  # eq. 1
        return Evaluation(loss, sum(right) / tests if test else None)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _map(self, model: Model, calls: list[Call]) -> Iterator[Any]:
        if self._pool is not None:
            yield from self._pool.map(model, calls)
            return
        for call in calls:
            yield perform(self._trainer, call, model)


def perform(trainer: Trainer, call: Call, model: Model) -> Any:
    """Carry out one call of the engine on a trainer; workers do the same."""
    name, arguments = call
    if name == "train":
        client, plan = arguments
        return trainer.train(client, model, plan)
    if name == "loss":
        return trainer.loss(arguments[0], model)
    assert name == "correct", name
    return trainer.correct(arguments[0], arguments[1], model)
