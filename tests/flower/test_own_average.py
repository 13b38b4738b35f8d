"""AdaQuantStrategy() without a wrapped strategy: the server averages, and the model is that of the protocol by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.errors import EngineError
from adaquantfl.flower import AdaQuantStrategy
from support.fake_flower import Arrays, Client, FakeGrid, record

MODEL: Arrays = {"w": np.linspace(-1, 1, 900, dtype="f4").reshape(30, 30), "running_var": np.ones(4, "f4")}


def change(number: int) -> Any:
    return lambda name, array: (
        array
        + np.float32(0.01 * (number + 1)) * np.cos(np.arange(array.size, dtype="f4") + number).reshape(array.shape)
    )


@pytest.mark.parametrize("settings", [{"rule": "auto"}, {"rule": aq.AdaQuant(s0=2), "downlink": "exact", "seed": 3}])
def test_the_model_is_the_servers_own_bit_for_bit(settings: dict[str, Any]) -> None:
    group = [Client(change(number), examples=10 + number) for number in range(5)]
    strategy = AdaQuantStrategy(**settings)
    result = strategy.start(FakeGrid(group), record(MODEL), num_rounds=4)
    by_hand = {"rule": aq.Auto(), "downlink": "late"} if settings["rule"] == "auto" else settings
    server, clients = aq.Server(MODEL, min_clients=1, **by_hand), [aq.Client(number) for number in range(5)]
    for _ in range(4):
        for number, order in server.open(range(5)).items():
            weights: Any = clients[number].open(order)
            trained = {name: change(number)(name, array) for name, array in weights.items()}
            server.receive(number, clients[number].reply(trained, loss=1.0, examples=10 + number))
        server.close()
    expected: Any = server.weights
    assert all(np.array_equal(array.numpy(), expected[name]) for name, array in result.arrays.items())
    assert result.train_metrics_clientapp[4]["aq_quantized"] == 5
    assert result.train_metrics_clientapp[4]["train_loss"] == pytest.approx(1.0)
    assert result.evaluate_metrics_clientapp[4]["seen"] == 2


def test_clients_without_the_mod_are_refused_with_what_to_do() -> None:
    with pytest.raises(EngineError, match=r"every ClientApp needs the mod.*AdaQuantStrategy\(FedAvg"):
        AdaQuantStrategy().start(FakeGrid([Client(change(n), mods=()) for n in range(3)]), record(MODEL), num_rounds=1)


def test_too_few_clients_leave_the_model() -> None:
    grid = FakeGrid([Client(change(n)) for n in range(3)])
    grid.order = [0]
    strategy = AdaQuantStrategy(min_clients=2)
    result = strategy.start(grid, record(MODEL), num_rounds=1)
    assert all(np.array_equal(array.numpy(), MODEL[name]) for name, array in result.arrays.items())
