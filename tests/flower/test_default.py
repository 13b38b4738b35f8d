"""At the default settings training gets as far as without quantization, whatever strategy is wrapped."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Strategy

from adaquantfl.flower import AdaQuantStrategy
from support.fake_flower import Arrays, Client, FakeGrid, final, run

CLIENTS, ROUNDS = 5, 15
STRATEGIES: dict[str, Callable[[], Strategy]] = {  # test_strategy.py has those that are like these
    "FedAvg": FedAvg,
    "half of the clients": lambda: FedAvg(fraction_train=0.5),
    "FedAdam": lambda: flower.FedAdam(eta=0.1, tau=0.01),
    "FedMedian": flower.FedMedian,
    "Krum": lambda: flower.Krum(num_malicious_nodes=1),
}
START: Arrays = {"weight": np.zeros((60, 100), "f4"), "bias": np.zeros(100, "f4")}


def optimum(seed: int, name: str) -> Any:
    """Of a client; -1 is what they have in common."""
    return np.random.default_rng([seed + 1, len(name)]).standard_normal(START[name].shape)


def learner(number: int, **options: Any) -> Client:
    """Each round moves it a third of the way to an optimum of its own, which it sees through noise."""
    rng = np.random.default_rng(100 + number)

    def change(name: str, array: Any) -> Any:
        target = optimum(-1, name) + 0.3 * optimum(number, name) + 0.3 * rng.standard_normal(array.shape)
        return (array + (target - array) / 3).astype("f4")

    return Client(change, **options)


def distance(strategy: Strategy, **options: Any) -> float:
    """How far from the common optimum training ends, in lengths of the way."""
    random.seed(0)  # by which Flower samples clients
    grid = FakeGrid([learner(number, **options) for number in range(CLIENTS)])
    model = final(run(strategy, grid, ROUNDS, START))
    far, way = (sum(np.sum((one[name] - optimum(-1, name)) ** 2) for name in START) for one in (model, START))
    return float(np.sqrt(far / way))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_gets_as_far_as_without_quantization(name: str) -> None:
    quantized, plain = distance(AdaQuantStrategy(STRATEGIES[name]())), distance(STRATEGIES[name](), mods=())
    assert quantized < 1.2 * plain < 0.5


def test_a_clients_context_holds_three_models_and_not_more() -> None:
    grid = FakeGrid([learner(number) for number in range(3)])
    run(AdaQuantStrategy(FedAvg()), grid, 4, START)
    model = sum(array.nbytes for array in START.values())
    for context in grid.contexts:
        assert sum(len(one.deflate()) for one in context.state.values()) < 3.2 * model
