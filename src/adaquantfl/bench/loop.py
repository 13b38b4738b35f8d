"""Rounds of the bench: the package's own, and the same with someone's compressor between the clients and the server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..engines.local import LocalEngine
from ..errors import ConfigError, EngineError
from ..protocol.arrays import AnyArray, Layout, Model, Vector
from ..runs.config import Config
from ..runs.loop import Run
from ..training.trainer import Arrays


@dataclass(frozen=True)
class Line:
    """After a round: what the test set says where it was asked, and the sums so far over all clients.

    up, down: bytes. passes: examples that went forward through a client's model. seconds: of making clients' messages.
    """

    round: int
    value: float | None
    up: int
    down: int
    passes: int
    seconds: float


@dataclass(frozen=True)
class Sent:
    """A client's message: what the server has of its update, how many bytes that took, and how long."""

    values: Vector
    size: int
    seconds: float


def engine_rounds(config: Config, engine: LocalEngine | None = None) -> Iterator[Line]:
    """The package's own rounds."""
    engine = engine or LocalEngine(config)
    try:
        run = Run(config, engine)
        passes, seconds = 0, 0.0
        while not run.finished:
            if config.loss == "full" and run.server.wants_loss():  # f(w_k), which each client measures
                passes += sum(min(len(part), config.loss_samples or len(part)) for part in engine.task.parts)
            line = run.play_round(lambda line: None)
            value = line.get("test_accuracy", line.get("test_loss"))
            passes += line["clients"] * config.tau * config.batch_size
            seconds += line["seconds"]["encode"]
            yield Line(line["round"], value, line["wire_bytes_up"], line["wire_bytes_down"], passes, seconds)
    finally:
        engine.close()


def compressed_rounds(config: Config, send: Callable[[int, int, Vector], Sent]) -> Iterator[Line]:
    """Rounds of float32 in which the server gets what `send(client, round, update)` leaves of each update.

    The bytes are those of the bare contents, without headers and checksums, which the package's own have.
    """
    engine = LocalEngine(config)
    trainer = engine.player.trainer
    train, layout = trainer.train, Layout.of(trainer.weights(), trainer.buffer_names)
    sent, mistakes = dict[int, Sent](), list[ConfigError]()

    def compressed(client: int, weights: Arrays, round: int, eta: float) -> tuple[dict[str, AnyArray], float]:
        trained, loss = train(client, weights, round, eta)
        before, after = layout.split(weights), layout.split(trained)
        try:
            update = after.weights - before.weights
            if not np.isfinite(update).all():
                return trained, math.nan  # diverged: it is no fault of the compressor
            sent[client] = send(client, round, update)
        except ConfigError as error:
            mistakes.append(error)
            raise
        received: Any = layout.join(Model(before.weights + sent[client].values, after.buffers, after.others))
        return received, loss

    trainer.train = compressed  # type: ignore[method-assign]
    untouched = 4 * layout.buffers + layout.other_bytes
    downlink, up, seconds = Downlink(4 * layout.dimension + untouched), 0, 0.0
    try:
        for line in engine_rounds(config, engine):
            size = sum(one.size for one in sent.values())
            downlink.serve(sent)
            downlink.after_round(size + untouched)
            up += size + untouched * len(sent)
            seconds += sum(one.seconds for one in sent.values())
            sent.clear()
            yield replace(line, up=up, down=downlink.sent, seconds=seconds)
    except EngineError as error:
        raise mistakes[0] if mistakes else error from None


class Downlink:
    """Bytes down: a client gets the steps that it missed, or the whole model where that is smaller."""

    def __init__(self, whole: int) -> None:
        self.sent, self._whole = 0, whole
        self._steps: list[int] = []
        self._holds: dict[int, int] = {}  # client -> how many steps are in its model

    def serve(self, clients: Iterable[int]) -> None:
        """These clients get the present model."""
        for client in clients:
            missed = sum(self._steps[self._holds[client] :]) if client in self._holds else self._whole
            self.sent += min(missed, self._whole)
            self._holds[client] = len(self._steps)

    def after_round(self, step: int) -> None:
        """A step of this size leads to the new model."""
        self._steps.append(step)
