"""A server for an engine, and rounds of the two, for tests that do not need a whole run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from adaquantfl.engines.base import Engine
from adaquantfl.engines.calls import Failure, Trained
from adaquantfl.protocol.server import Server


def server_of(engine: Engine) -> Server:
    """A server with the engine's first model and configuration."""
    trainer = engine.player.trainer
    stages = engine.config.stages(trainer.examples)
    return Server(trainer.weights(), exact=trainer.buffer_names, stages=stages, secrets=engine.secrets)


def ask(engine: Engine, server: Server, **changes: Any) -> Iterator[tuple[int, Trained | Failure]]:
    """The answers to the orders of a new round, as they come; the server is then as it was before that round.

    changes: fields of the orders that differ from what the server says.
    """
    before = server.current
    orders = server.open(eta=0.1, loss=2.3)
    try:
        planned = server._opened()
        planned.orders = {client: replace(order, **changes) for client, order in planned.orders.items()}
        yield from engine.train(server, orders)
    finally:
        server.return_to(before)


def replies(engine: Engine, server: Server, **changes: Any) -> dict[int, bytes | str]:
    """The replies of a new round in client order; for a client that fails, the reason."""
    answers = sorted(ask(engine, server, **changes), key=lambda answer: answer[0])
    return {client: one.reply if isinstance(one, Trained) else one.reason for client, one in answers}


def play_round(engine: Engine, server: Server) -> dict[str, Any]:
    """One round; returns its facts."""
    for client, answer in engine.train(server, server.open(eta=0.1, loss=2.3)):
        if isinstance(answer, Trained):
            server.receive(client, answer.reply)
        else:
            server.absent(client, answer.reason)
    return server.close().facts
