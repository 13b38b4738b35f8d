"""Private rounds in one process, in which clients can drop out or send something else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from adaquantfl.errors import Refused
from adaquantfl.private import Client, Server


def play_round(
    server: Server,
    clients: Mapping[int, Client],
    train: Callable[[int, Any], tuple[Any, float]],
    *,
    gone: Mapping[int, Collection[int]] | None = None,
    change: Callable[[int, int, bytes], bytes] = lambda step, client, reply: reply,
    asked: Collection[int] | None = None,
    eta: float = 0.1,
) -> Any:
    """A round. train: (client, weights) -> trained weights and loss. gone: step -> who drops out before it."""
    messages, step = server.open(sorted(clients if asked is None else asked), eta=eta), 0
    while messages:
        for number in messages:
            if number in (gone or {}).get(step, ()):
                server.absent(number, "it dropped out.")
                continue
            one, message = clients[number], messages[number]
            reply = one.answer(message) if step else one.reply(*train(number, one.open(message)))
            with suppress(Refused):
                server.receive(number, change(step, number, reply))
        messages, step = server.further(), step + 1
    return server.close()


def drift(dimension: int, spread: float = 0.002, mean: float = 0.001, seed: int = 0) -> Any:
    """Training that moves all clients in one direction, and each in one of its own; loss 1 + client / 10."""
    base = np.random.default_rng(seed).normal(0, mean, dimension).astype(np.float32)

    def train(client: int, weights: Any) -> tuple[Any, float]:
        own = np.random.default_rng((seed, client + 1)).normal(0, spread, dimension).astype(np.float32)
        return weights + base + own, 1 + client / 10

    return train
