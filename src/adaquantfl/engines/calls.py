"""What every engine asks of its clients, and how the answers become replies and evaluations.

A call is a pure function of (config, model, call): who carries it out, and where, does not matter. (But for error
feedback: what a client left out stays with the process that plays it.) An engine only carries calls there and answers
back (`carry`), and says which ones failed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, EngineError
from ..protocol.downlink import Downlink
from ..protocol.messages import Absence, Evaluation, Model, Plan, Reply, Vector
from ..protocol.quorum import check_quorum
from ..runs.config import Config
from ..training.task import Task
from ..training.trainer import Trainer

# ("train", (client, plan)), ("loss", (client,)), or one of SHARED with (start, stop)
Call = tuple[str, tuple[Any, ...]]
SHARED = ("losses", "correct", "test_losses")  # calls about samples that everybody has
_SHARD = 1_000  # samples a call
_POOL = 8_192  # samples that stand for all clients' data where most of them are not asked


@dataclass(frozen=True)
class Failure:
    """A call that was not answered, and why."""

    reason: str


class CallEngine(ABC):
    """An `Engine` out of calls. `train` and `loss` belong to a client; those of SHARED anyone may answer."""

    name: str

    def __init__(self, config: Config) -> None:
        self.config = config
        self.task = Task.of(config)
        self.trainer = Trainer(config, self.task)
        self.federation = self.trainer.federation
        self.downlink: Downlink | None = None

    @abstractmethod
    def carry(self, model: Model, calls: list[Call]) -> Iterator[Any]:
        """The answers, or `Failure`s, in the order of the calls."""

    def train(self, model: Model, plan: Plan, clients: Sequence[int] | None = None) -> Iterator[Reply | Absence]:
        clients = range(self.config.clients) if clients is None else clients
        calls: list[Call] = [("train", (client, plan)) for client in clients]
        for client, answer in zip(clients, self.carry(model, calls), strict=True):
            yield Absence(client, answer.reason) if isinstance(answer, Failure) else answer

    def evaluate(self, model: Model, test: bool = True) -> Evaluation:
        """f(w) from every client's own data (eq. 1); with a sample of clients a round, from a sample of all data."""
        tests = len(self.task.test) if test and self.task.test else 0
        pooled = min(_POOL, sum(self.federation.samples)) if self.config.clients_per_round else 0
        asked = [] if pooled else range(self.config.clients)
        calls: list[Call] = [("loss", (client,)) for client in asked]
        calls += [("losses", shard) for shard in _shards(pooled)]
        shared = len(calls)
        calls += [("correct" if self.task.accuracy else "test_losses", shard) for shard in _shards(tests)]
        answers = list(self.carry(model, calls))
        for number in range(len(asked), len(calls)):  # the server has this data too, and stands in
            if isinstance(answers[number], Failure):
                answers[number] = perform(self.trainer, calls[number], model)
        loss = sum(answers[:shared]) / pooled if pooled else self._mean_loss(answers[:shared])
        mean = sum(answers[shared:]) / tests if tests else None
        return Evaluation(loss, mean) if self.task.accuracy else Evaluation(loss, None, mean)

    def kept(self) -> dict[int, Vector]:
        return {}  # clients in processes of their own have it there

    def restore(self, kept: Mapping[int, Vector]) -> None:
        if kept:
            raise EngineError(
                f"The checkpoint holds what {len(kept)} clients left out of their updates (error feedback), which only "
                "the local engine can give back to them: resume with --engine local."
            )

    def _mean_loss(self, answers: list[Any]) -> float:
        missing = {client: answer.reason for client, answer in enumerate(answers) if isinstance(answer, Failure)}
        check_quorum(missing, len(answers), self.config, "Evaluation")
        p = self.federation.weights
        total: float = sum(p[client] * answer for client, answer in enumerate(answers) if client not in missing)
        return total / sum(p[client] for client in range(len(p)) if client not in missing) if missing else total

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
    if name == "losses":
        return trainer.losses(arguments[0], arguments[1], model)
    if name == "test_losses":
        return trainer.test_losses(arguments[0], arguments[1], model)
    assert name == "correct", name
    return trainer.correct(arguments[0], arguments[1], model)


def _shards(samples: int) -> list[tuple[int, int]]:
    return [(start, min(start + _SHARD, samples)) for start in range(0, samples, _SHARD)]


def refuse_feedback(config: Config) -> None:
    """ConfigError where clients should remember what they left out, on an engine that gives a client any process."""
    if config.feedback:
        raise ConfigError(
            f"quantizer = {config.quantizer!r} needs clients that keep what they left out from round to round. On "
            "Flower a client may be another process every time: use --engine local or gloo, or a quantizer that is "
            "unbiased."
        )
