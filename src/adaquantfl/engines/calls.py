"""What every engine asks of its clients, and how the answers become replies and evaluations.

A call is a pure function of (config, model, call): who carries it out, and where, does not matter. An engine only
carries calls there and answers back (`carry`), and says which ones failed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..config import Config
from ..federated.client import Trainer
from ..federated.messages import Absence, Evaluation, Model, Plan, Reply
from ..federated.quorum import check_quorum
from ..tasks.task import Task

Call = tuple[str, tuple[Any, ...]]  # ("train", (client, plan)), ("loss", (client,)) or ("correct", (start, stop))
_TEST_SHARD = 1_000  # test samples a call


@dataclass(frozen=True)
class Failure:
    """A call that was not answered, and why."""

    reason: str


class CallEngine(ABC):
    """An `Engine` out of calls. `train` and `loss` calls belong to a client; anyone may answer `correct`."""

    name: str

    def __init__(self, config: Config) -> None:
        self.config = config
        self.task = Task.of(config)
        self.trainer = Trainer(config, self.task)
        self.federation = self.trainer.federation

    @abstractmethod
    def carry(self, model: Model, calls: list[Call]) -> Iterator[Any]:
        """The answers, or `Failure`s, in the order of the calls."""

    def train(self, model: Model, plan: Plan) -> Iterator[Reply | Absence]:
        calls: list[Call] = [("train", (client, plan)) for client in range(self.config.clients)]
        for client, answer in enumerate(self.carry(model, calls)):
            yield Absence(client, answer.reason) if isinstance(answer, Failure) else answer

    def evaluate(self, model: Model, test: bool = True) -> Evaluation:
        clients = range(self.config.clients)
        tests = len(self.task.test.y) if test else 0
        shards = [(start, min(start + _TEST_SHARD, tests)) for start in range(0, tests, _TEST_SHARD)]
        calls: list[Call] = [("loss", (client,)) for client in clients] + [("correct", shard) for shard in shards]
        answers = list(self.carry(model, calls))
        losses = dict(zip(clients, answers, strict=False))
        missing = {client: answer.reason for client, answer in losses.items() if isinstance(answer, Failure)}
        check_quorum(missing, self.config, "Evaluation")
        p = self.federation.weights
        heard = sum(p[client] for client in clients if client not in missing) if missing else 1.0
        loss = sum(p[client] * losses[client] for client in clients if client not in missing) / heard  # eq. 1
        if not test:
            return Evaluation(loss, None)
        right = [
            perform(self.trainer, call, model) if isinstance(answer, Failure) else answer  # the server has the test set
            for call, answer in zip(calls[len(clients) :], answers[len(clients) :], strict=True)
        ]
        return Evaluation(loss, sum(right) / tests)

    @abstractmethod
    def close(self) -> None:
        """Let go of processes and memory. May be called twice."""


def perform(trainer: Trainer, call: Call, model: Model) -> Any:
    """Carry out one call."""
    name, arguments = call
    if name == "train":
        client, plan = arguments
        return trainer.train(client, model, plan)
    if name == "loss":
        return trainer.loss(arguments[0], model)
    assert name == "correct", name
    return trainer.correct(arguments[0], arguments[1], model)
