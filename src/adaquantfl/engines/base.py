"""What an engine is: it carries orders to the clients and their replies back, and has models evaluated."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ..errors import CheckpointError, Diverged, EngineError
from ..protocol.cohort import who_is_missing
from ..protocol.limits import bounded
from ..protocol.server import Server
from ..protocol.stages import Stages
from ..training.settings import Settings
from ..training.task import Task
from ..training.trainer import Trainer
from .calls import Call, Failure, Player, Trained
from .evaluation import Evaluation

_log = logging.getLogger("adaquantfl")
_SAMPLES_PER_CALL = 1_000
_POOLED_SAMPLES = 8_192  # that stand for all clients' data where most of them are not asked


class Engine(ABC):
    """Carries calls to clients (`carry`). The rest, from orders to evaluations, is the same for all engines.

    states_at_hand: `client_states` costs nothing. Otherwise a run asks for the states only when it writes a checkpoint.
    secrets: client -> the secret with which it signs its replies, where clients do.
    """

    name: ClassVar[str] = ""
    states_at_hand: bool = True

    def __init__(self, config: Settings) -> None:
        self.config = config
        self.task = Task.of(config)
        self.player = Player(Trainer(config, self.task))
        self.secrets: Mapping[int, bytes] = {}

    @abstractmethod
    def carry(self, server: Server, calls: list[Call]) -> Iterator[tuple[int, Any]]:
        """The clients' answers as they come, (place in calls, answer or Failure), about the server's model."""

    @abstractmethod
    def close(self) -> None:
        """Let go of processes and memory. May be called twice."""

    def train(self, server: Server, clients: Iterable[int]) -> Iterator[tuple[int, Trained | Failure]]:
        """Each client's reply, or why there is none, as they come."""
        calls = [Call("train", client) for client in clients]
        for place, answer in self._answers(server, calls):
            yield calls[place].client, answer

    def evaluate(self, server: Server, test: bool = True) -> Evaluation:
        """f(w) from every client's own data (eq. 1); with a sample of clients per round, from a sample of all data."""
        trainer, task = self.player.trainer, self.task
        tests = len(task.test) if test and task.test else 0
        pooled = min(_POOLED_SAMPLES, sum(trainer.examples)) if self.config.clients_per_round else 0
        losses = [Call("losses", -1, numbers=shard) for shard in _shards(pooled)]
        on_test, column = ("correct", "test_accuracy") if task.accuracy else ("test_losses", "test_loss")
        sums = self.measure(server, [*losses, *(Call(on_test, -1, numbers=shard) for shard in _shards(tests))])
        if pooled:
            loss = sum(sums[: len(losses)]) / pooled
            found = Evaluation(loss, loss)
        else:
            each = [Call("loss", client) for client in range(self.config.clients)]
            found = self._losses(server, [answer for _, answer in sorted(self._answers(server, each))])
        if not tests:
            return found
        return replace(found, test={column: sum(sums[len(losses) :]) / tests})

    def measure(self, server: Server, calls: list[Call]) -> list[float]:
        """The answers to calls about samples that everybody has, by the server itself."""
        self.player.hold(server.held)
        answers = [self.player.answer(call.ordered(server, server.digest)) for call in calls]
        for answer in answers:
            if isinstance(answer, Failure):
                raise EngineError(f"The server could not evaluate the model: {answer.reason}")
        return answers

    def client_states(self) -> dict[str, Any]:
        """What clients keep from round to round, by their numbers; None for one that cannot be asked.

        It is part of a run's checkpoint.
        """
        return {}

    def restore_clients(self, states: Mapping[str, Any]) -> None:
        """Give it back to them, before the first round of a run that is resumed."""
        if states:
            raise CheckpointError(
                f"The checkpoint holds what {len(states)} clients left out of their updates (error feedback), which "
                f"the engine {self.name!r} cannot give back to them: resume with --engine local."
            )

    def _answers(self, server: Server, calls: list[Call]) -> Iterator[tuple[int, Any]]:
        """Answers; who does not hold the model that its order starts from is asked again, with the whole model."""
        again: dict[int, Call] = {}
        for place, answer in self.carry(server, calls):
            if isinstance(answer, Failure) and answer.model_needed:
                again[place] = replace(calls[place], whole=True)
            else:
                yield place, answer
        if again:
            places = list(again)
            for place, answer in self.carry(server, list(again.values())):
                yield places[place], answer

    def _losses(self, server: Server, answers: list[Any]) -> Evaluation:
        """The mean over the clients whose loss can be used, with the others and why not."""
        missing = {client: answer.reason for client, answer in enumerate(answers) if isinstance(answer, Failure)}
        stages, cohort = server.stages, server.stages.cohort
        cohort.check(missing, len(answers), "Evaluation")
        losses = {client: answer for client, answer in enumerate(answers) if client not in missing}
        reasons = {client: reason for client, loss in losses.items() if (reason := self._unusable(loss, stages))}
        p, used = cohort.p, sorted(losses.keys() - reasons)
        refused = {str(client): reason for client, reason in reasons.items()}
        if reasons:
            _log.warning("Evaluation: losses were refused: %s", who_is_missing(reasons))
        if not used:
            if server.stages.undo and not any(map(math.isfinite, losses.values())):
                return Evaluation(math.nan, math.nan, refused=refused)  # a ruined model: the rule will take it back
            raise Diverged(
                f"Evaluation: no client sent a loss that can be used: {who_is_missing(reasons)} If the training has "
                "diverged, lower the learning rate, or take more levels."
            )
        told = {client: losses[client] for client in used}
        counted = bounded(told, dict(enumerate(p)), stages.negative_loss)
        far_off = tuple(client for client in used if counted[client] != told[client])
        share = 1.0 if len(used) == len(answers) else sum(p[client] for client in used)
        loss, rule_loss = (sum(p[client] * one[client] for client in used) / share for one in (told, counted))
        return Evaluation(loss, rule_loss, refused=refused, bounded=far_off)

    def _unusable(self, loss: float, stages: Stages) -> str:
        """Why a client's loss is left out; empty where it is not."""
        if not math.isfinite(loss):
            return f"its loss is {loss:g}."
        if loss < 0 and not self.config.task:
            return f"its loss is {loss:g}, but cross-entropy is never below 0."
        if loss < 0 and not stages.negative_loss:
            return f"its loss is {loss:g}; {stages.rule.name or 'the rule'} takes losses from 0."
        return ""


def _shards(samples: int) -> list[tuple[int, int]]:
    return [(start, min(start + _SAMPLES_PER_CALL, samples)) for start in range(0, samples, _SAMPLES_PER_CALL)]
