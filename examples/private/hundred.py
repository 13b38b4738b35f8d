"""100 clients train a classifier in private rounds; some drop out, and epsilon is printed after each round.

    python examples/private/hundred.py

Four processes play 25 clients each. They make the keys, the masks and the noise. The server is in this process, and
only ever sees messages. With real devices, the pipes below are a network.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from adaquantfl.private import BudgetSpent, Client, Distributed, Server

CLIENTS, PROCESSES, CLASSES, FEATURES = 100, 4, 5, 400
DROPPED = 0.05  # of the clients, at each of the four steps
PRIVATE = Distributed(bits=4.0, noise=2.0, clip=0.5, epsilon=8.0, delta=1e-3)


def examples(client: int, count: int = 60) -> tuple[Any, Any]:
    """A client's data: points around five centres, which all clients share."""
    centres = np.random.default_rng(0).normal(0, 0.15, (CLASSES, FEATURES))
    rng = np.random.default_rng((1, client))
    labels = rng.integers(0, CLASSES, count)
    return (centres[labels] + rng.normal(size=(count, FEATURES))).astype(np.float32), labels


def probabilities(weights: Any, points: Any) -> Any:
    scores = points @ weights.reshape(FEATURES, CLASSES)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def train(client: int, weights: Any, steps: int = 5, eta: float = 0.5) -> tuple[Any, float]:
    """Some steps of gradient descent on the client's own data."""
    points, labels = examples(client)
    trained, wanted = np.array(weights), np.eye(CLASSES, dtype=np.float32)[labels]
    for _ in range(steps):
        found = probabilities(trained, points)
        trained -= eta * (points.T @ (found - wanted)).ravel() / len(points)
    return trained, float(-np.log(found[np.arange(len(labels)), labels] + 1e-9).mean())


def play(pipe: Connection, numbers: list[int]) -> None:
    """A process of clients: each message in is answered by one out, or by silence where the client drops out."""
    clients, rng = {number: Client(number) for number in numbers}, np.random.default_rng((2, numbers[0]))
    while (received := pipe.recv()) is not None:
        number, first, message = received
        one = clients[number]
        if rng.random() < DROPPED:
            pipe.send((number, None))
        elif first:
            pipe.send((number, one.reply(*train(number, one.open(message)))))
        else:
            pipe.send((number, one.answer(message)))


def accuracy(weights: Any) -> float:
    points, labels = examples(client=10**6, count=2000)
    return float((probabilities(weights, points).argmax(axis=1) == labels).mean())


def main() -> None:
    ours, processes = [], []
    for place in range(PROCESSES):
        mine, theirs = multiprocessing.Pipe()
        numbers = list(range(place, CLIENTS, PROCESSES))
        processes.append(multiprocessing.Process(target=play, args=(theirs, numbers), daemon=True))
        processes[-1].start()
        ours.append(mine)
    server = Server(np.zeros(FEATURES * CLASSES, np.float32), PRIVATE)
    try:
        while True:
            orders, first = server.open(range(CLIENTS), eta=0.5), True
            while orders:
                for number in orders:
                    ours[number % PROCESSES].send((number, first, orders[number]))
                for number in orders:
                    client, reply = ours[number % PROCESSES].recv()
                    if reply is not None:
                        server.receive(client, reply)
                orders, first = server.further(), False
            facts = server.close().facts
            print(
                f"round {facts['round']}: {facts['clients']} clients in the sum, {facts['masked_bits']:.2f} bits per "
                f"element, accuracy {accuracy(server.weights):.1%}, epsilon {facts['epsilon']:.2f}"
            )
    except BudgetSpent as spent:
        print(spent)
    for pipe in ours:
        pipe.send(None)


if __name__ == "__main__":
    main()
