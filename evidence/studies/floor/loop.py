"""A short loop for methods that the package does not have, beside the package's own rounds.

It has the same trainer, clients, seeds and evaluation; with float32 it gives the same model, bit for bit. Its bytes are
those of the bare contents: it counts no headers and no checksums, which the package's own do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from adaquantfl.bench.loop import Downlink, Line
from adaquantfl.codecs.accumulator import Checked
from adaquantfl.codecs.frame import read_frame
from adaquantfl.codecs.raw import encode_float32
from adaquantfl.errors import Diverged
from adaquantfl.protocol.arrays import Layout, Model, Vector
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.protocol.updates import Parts, Update, Updates
from adaquantfl.runs.config import Config
from adaquantfl.training.task import Task
from adaquantfl.training.trainer import Trainer

_OTHER_BATCHES = 1_000_000  # rounds: more than any run has, so that nobody else draws these mini-batches
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Exchanged:
    """A round. values: what the server has of each client's update. up: bytes of all clients. step: bytes that lead a
    client from the old model to the new one. at_once: the round's clients got them within the round. seconds: that the
    clients took to make their messages, where they are measured."""

    values: dict[int, Vector]
    up: int
    step: int
    at_once: bool = False
    seconds: float = 0.0


class Rival(Protocol):
    """A method. kept: how much of what was left out is added to the next update. eta: the server's step."""

    @property
    def kept(self) -> float: ...

    @property
    def eta(self) -> float: ...

    def exchange(
        self, wanted: Mapping[int, Vector], weights: Mapping[int, float], seed: int, round: int
    ) -> Exchanged: ...


MakeRival = Callable[[tuple[Shape, ...]], Rival]


def rival_rounds(config: Config, make: MakeRival, batches: int = 0) -> Iterator[Line]:
    """The rounds of a method that the package does not have."""
    return (line for line, _ in short_loop(config, make, batches))


def short_loop(config: Config, make: MakeRival, batches: int = 0) -> Iterator[tuple[Line, Model]]:
    """Each round's line and the model after it. batches: another number draws other mini-batches."""
    task = Task.of(config)
    trainer = Trainer(config, task)
    layout = Layout.of(trainer.weights(), trainer.buffer_names)
    rival = make(shapes(task, layout))
    model, cohort = layout.split(trainer.weights(), copy=True), Cohort(trainer.examples, config.clients_per_round)
    untouched = 4 * layout.buffers + layout.other_bytes
    downlink = Downlink(4 * layout.dimension + untouched)
    up, passes, seconds, memory = 0, 0, 0.0, dict[int, Vector]()
    for round in range(config.rounds):
        shares, eta = cohort.draw(config.seed, round), config.learning_rate(round)
        downlink.serve(shares.weights)
        given: Any = layout.join(model, copy=False)
        trained = {}
        for client in shares.weights:
            arrays, _ = trainer.train(client, given, round + batches * _OTHER_BATCHES, eta)
            trained[client] = layout.split(arrays, copy=True)
        updates = {client: after.weights - model.weights for client, after in trained.items()}
        if not all(np.isfinite(update).all() for update in updates.values()):
            raise Diverged(f"Round {round + 1}: a client's update is not finite.")
        wanted = {c: u + np.float32(rival.kept) * memory[c] if c in memory else u for c, u in updates.items()}
        sent = rival.exchange(wanted, shares.weights, config.seed, round)
        seconds += sent.seconds
        passes += len(updates) * config.tau * config.batch_size
        if rival.kept:
            memory |= {client: wanted[client] - values for client, values in sent.values.items()}
        each = [_update(c, shares.weights[c], values, trained[c]) for c, values in sent.values.items()]
        made = Updates(tuple(each), layout, model, shares.total, not shares.complete).sum()
        step = made.update if rival.eta == 1.0 else np.float32(rival.eta) * made.update
        model = Model(model.weights + step, made.buffers, made.others)
        up += sent.up + untouched * len(each)
        downlink.after_round(sent.step + untouched)
        if sent.at_once:
            downlink.serve(shares.weights)
        value = None
        if (round + 1) % config.evaluate_every == 0 or round + 1 == config.rounds:
            value = _tested(trainer, task, layout.join(model, copy=False))
        yield Line(round + 1, value, up, downlink.sent, passes, seconds), model


def shapes(task: Task, layout: Layout) -> tuple[Shape, ...]:
    """The shape of each tensor of the vector, in its order."""
    found = {name: tuple(p.shape) for name, p in task.build().named_parameters()}
    return tuple(found[entry.name] for entry in layout.entries if entry.name in found)


def _update(client: int, weight: float, values: Vector, trained: Model) -> Update:
    buffers = Checked.of(read_frame(encode_float32(trained.buffers)), weight) if len(trained.buffers) else None
    parts = Parts(Checked.of(read_frame(encode_float32(values)), weight), buffers, trained.others)
    return Update(client, weight, 1.0, lambda: parts)


def _tested(trainer: Trainer, task: Task, weights: Any) -> float:
    assert task.test is not None
    tests = len(task.test)
    measure = trainer.correct if task.accuracy else trainer.test_losses
    return measure(0, tests, weights) / tests
