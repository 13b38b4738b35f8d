"""At the default settings a small classifier learns as well as without quantization, whatever strategy is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Strategy

from adaquantfl.flower import AdaQuantStrategy
from support.fake_flower import Arrays, Client, FakeGrid, arrays_of, record

INPUTS, HIDDEN, CLASSES, CLIENTS, ROUNDS = 24, 300, 6, 5, 12
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "FedAvg": FedAvg,
    "FedAdam": lambda: flower.FedAdam(eta=0.03, tau=0.01),
    "FedMedian": flower.FedMedian,
    "Krum": lambda: flower.Krum(num_malicious_nodes=1),
}


class Learner(Client):
    """Trains a network with one hidden layer on its share of the data: ten steps of SGD."""

    def __init__(self, number: int, **options: Any) -> None:
        super().__init__(lambda name, array: array, examples=200, **options)
        self.x, self.y = data(200, seed=1 + number)
        self.rng = np.random.default_rng(100 + number)

    def _train(self, message: Message, context: Any) -> Message:
        model = {name: array.copy() for name, array in arrays_of(message).items()}
        losses = []
        for _ in range(10):
            batch = self.rng.integers(0, len(self.y), 32)
            losses.append(descend(model, self.x[batch], self.y[batch]))
        metrics = MetricRecord({"num-examples": 200, "train_loss": float(np.mean(losses))})
        return Message(RecordDict({"arrays": record(model), "metrics": metrics}), reply_to=message)


def data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points around the corners of a cube, with much noise."""
    centres = np.random.default_rng(0).standard_normal((CLASSES, INPUTS))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, count)
    return (centres[y] + 1.4 * rng.standard_normal((count, INPUTS))).astype("f4"), y


def start() -> Arrays:
    rng = np.random.default_rng(5)
    return {
        "first.weight": (rng.standard_normal((INPUTS, HIDDEN)) / np.sqrt(INPUTS)).astype("f4"),
        "first.bias": np.zeros(HIDDEN, "f4"),
        "second.weight": (rng.standard_normal((HIDDEN, CLASSES)) / np.sqrt(HIDDEN)).astype("f4"),
        "second.bias": np.zeros(CLASSES, "f4"),
    }


def forward(model: Arrays, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(x @ model["first.weight"] + model["first.bias"], 0)
    out = hidden @ model["second.weight"] + model["second.bias"]
    out = np.exp(out - out.max(axis=1, keepdims=True))
    return hidden, out / out.sum(axis=1, keepdims=True)


def descend(model: Arrays, x: np.ndarray, y: np.ndarray, eta: float = 0.1) -> float:
    hidden, p = forward(model, x)
    loss = float(-np.log(p[np.arange(len(y)), y] + 1e-9).mean())
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    back = (p @ model["second.weight"].T) * (hidden > 0)
    model["second.weight"] -= (eta * hidden.T @ p).astype("f4")
    model["second.bias"] -= (eta * p.sum(0)).astype("f4")
    model["first.weight"] -= (eta * x.T @ back).astype("f4")
    model["first.bias"] -= (eta * back.sum(0)).astype("f4")
    return loss


def trained(strategy: Strategy, **options: Any) -> tuple[float, Any]:
    """The accuracy on data that nobody trained on, and Flower's result."""
    grid = FakeGrid([Learner(number, **options) for number in range(CLIENTS)])
    result = strategy.start(grid, record(start()), num_rounds=ROUNDS)
    model = {name: array.numpy() for name, array in result.arrays.items()}
    x, y = data(2_000, seed=99)
    return float((forward(model, x)[1].argmax(1) == y).mean()), result


@cache
def without(name: str) -> float:
    return trained(STRATEGIES[name](), mods=())[0]


@pytest.mark.parametrize("name", STRATEGIES)  # test_strategy.py has those that are like these
def test_every_strategy_learns_as_without_quantization(name: str) -> None:
    accuracy, result = trained(AdaQuantStrategy(STRATEGIES[name]()))
    assert accuracy > without(name) - 0.02
    assert all(metrics["aq_quantized"] == CLIENTS for metrics in result.train_metrics_clientapp.values())


def test_so_does_a_sample_of_the_clients() -> None:
    half, plain = (
        trained(wrap(FedAvg(fraction_train=0.5)), **options)[0]
        for wrap, options in ((AdaQuantStrategy, {}), (lambda strategy: strategy, {"mods": ()}))
    )
    assert half > plain - 0.03


def test_a_clients_context_holds_three_models_and_not_more() -> None:
    grid = FakeGrid([Learner(number) for number in range(3)])
    AdaQuantStrategy(FedAvg()).start(grid, record(start()), num_rounds=4)
    model = sum(array.nbytes for array in start().values())
    for context in grid.contexts:
        assert sum(len(one.deflate()) for one in context.state.values()) < 3.2 * model
