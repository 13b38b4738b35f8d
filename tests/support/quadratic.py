"""A federation in NumPy alone: each client pulls the model towards a point of its own. No PyTorch, no data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import adaquantfl as aq

SHAPES: dict[str, tuple[int, ...]] = {"conv": (8, 5, 5), "scale": (7,), "norm.running_mean": (7,), "linear": (40, 9)}
ETA = 0.3
Arrays = dict[str, Any]


def start() -> Arrays:
    """The first model: float arrays, BatchNorm's statistics and a counter."""
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    return {**arrays, "norm.num_batches_tracked": np.zeros((), dtype=np.int64)}


def examples(client: int) -> int:
    return 10 * (client + 1)


def target(client: int, name: str) -> np.ndarray:
    rng = np.random.default_rng([client, len(name)])
    return (rng.standard_normal(SHAPES[name]) + 2.0).astype(np.float32)


def loss(client: int, weights: Arrays) -> float:
    """The mean squared distance to the client's point."""
    return float(np.mean([np.mean((weights[name] - target(client, name)) ** 2) for name in SHAPES]))


def train(client: int, weights: Arrays) -> tuple[Arrays, float]:
    """Three steps towards the client's point; the loss before them."""
    before, after = loss(client, weights), dict(weights)
    for _ in range(3):
        after |= {name: after[name] - np.float32(ETA) * (after[name] - target(client, name)) for name in SHAPES}
    after["norm.num_batches_tracked"] = after["norm.num_batches_tracked"] + 3
    return {name: np.asarray(array, dtype=np.asarray(weights[name]).dtype) for name, array in after.items()}, before


def answer(client: aq.Client, order: bytes) -> bytes:
    """What an honest client does with an order."""
    weights = client.open(order)
    trained, seen = train(client.number, weights)
    return client.reply(trained, seen, examples(client.number))


def play(
    server: aq.Server,
    clients: dict[int, aq.Client],
    rounds: int,
    lost: Callable[[int, int], bool] = lambda round, client: False,
) -> list[dict[str, Any]]:
    """Rounds in one process. lost: whose reply does not arrive."""
    facts = []
    for _ in range(rounds):
        round = server.current.round
        orders = server.open(sorted(clients), eta=0.1)
        for client, order in orders.items():
            reply = answer(clients[client], order)
            if not lost(round, client):
                server.receive(client, reply)
        facts.append(server.close().facts)
    return facts
