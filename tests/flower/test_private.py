"""AdaQuantStrategy(private=...): the server of a Flower app sees only sums, with the same mod at the clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    MultiKrum,
)

from adaquantfl.errors import ConfigError, EngineError
from adaquantfl.flower import AdaQuantStrategy
from adaquantfl.private import BudgetSpent, Distributed, Masked
from support.fake_flower import Arrays, Client, FakeGrid, record

MODEL: Arrays = {"w": np.linspace(-1, 1, 900, dtype="f4").reshape(30, 30), "b": np.zeros(30, "f4")}
ALL = {"fraction_train": 1.0, "fraction_evaluate": 0.0}


def change(number: int) -> Any:
    return lambda name, array: (
        array + np.float32(0.01 * (1 + number / 10)) * np.cos(np.arange(array.size, dtype="f4")).reshape(array.shape)
    )


def group(count: int = 8, **settings: Any) -> FakeGrid:
    return FakeGrid([Client(change(number), loss=1 + number / 10, **settings) for number in range(count)])


def mean_of(count: int) -> Arrays:
    return {name: np.mean([change(n)(name, array) for n in range(count)], axis=0) for name, array in MODEL.items()}


@pytest.mark.parametrize("strategy", [None, FedAvg(**ALL)])
def test_the_model_is_the_mean_that_nobody_could_see(strategy: Any) -> None:
    seen = []
    grid = group()
    grid.tamper = dict.fromkeys(range(8), lambda message: seen.append(message) or message)
    made = AdaQuantStrategy(strategy, private=Masked(bits=32.0))
    result = made.start(grid, record(MODEL), num_rounds=1)  # with 16 bits: nothing is known of the updates yet
    for name, array in mean_of(8).items():
        np.testing.assert_allclose(result.arrays[name].numpy(), array, atol=1e-3)
    metrics = result.train_metrics_clientapp[1]
    assert metrics["aq_quantized"] == 8
    assert metrics["train_loss"] == pytest.approx(1.35, abs=1e-6)
    trained = [message for message in seen if message.has_content() and message.content.config_records]
    assert len(trained) >= 4 * 8
    assert not any(message.content.array_records or message.content.metric_records for message in trained)


def test_true_takes_one_bit_per_element() -> None:
    result = AdaQuantStrategy(FedAvg(**ALL), private=True).start(group(), record(MODEL), num_rounds=3)
    assert result.train_metrics_clientapp[3]["aq_masked_bits"] <= 1.01


def test_the_servers_optimizer_takes_the_mean() -> None:
    settings: dict[str, Any] = {**ALL, "eta": 0.05}
    plain = FedAdam(**settings).start(group(mods=()), record(MODEL), num_rounds=1)
    made = AdaQuantStrategy(FedAdam(**settings), private=Masked(bits=32.0))
    private = made.start(group(), record(MODEL), num_rounds=1)
    for name in MODEL:
        np.testing.assert_allclose(private.arrays[name].numpy(), plain.arrays[name].numpy(), atol=5e-3)


@pytest.mark.parametrize("step", [2, 3])
def test_nodes_that_drop_out_in_the_middle_do_not_end_the_round(step: int) -> None:
    grid, counts = group(12), dict[int, int]()

    def lose(message: Message) -> Message:
        node = message.metadata.src_node_id
        counts[node] = counts.get(node, 0) + 1
        return Message(Error(1, "gone"), reply_to=message) if counts[node] == step else message

    grid.tamper = {1: lose, 2: lose}
    made = AdaQuantStrategy(FedAvg(**ALL), private=Masked(bits=32.0))
    result = made.start(grid, record(MODEL), num_rounds=1)
    assert result.train_metrics_clientapp[1]["aq_failed"] >= 1
    assert result.train_metrics_clientapp[1]["aq_quantized"] == 10


def test_a_client_without_the_mod_is_refused_and_too_few_leave_the_model() -> None:
    grid = group()
    grid.clients[0] = Client(change(0), mods=())
    made = AdaQuantStrategy(FedAvg(**ALL), private=True)
    made.start(grid, record(MODEL), num_rounds=1)
    assert "plain weights" in " ".join(made.refusals.values())


def test_a_round_with_too_few_nodes_leaves_the_model_and_the_run_goes_on() -> None:
    grid = group(4)
    grid.tamper = dict.fromkeys((0, 1), lambda message: Message(Error(1, "gone"), reply_to=message))
    made = AdaQuantStrategy(
        FedAvg(**{**ALL, "min_train_nodes": 4, "min_available_nodes": 4}), private=Masked(dropouts=0.5)
    )
    result = made.start(grid, record(MODEL), num_rounds=2)
    assert not any(metrics.get("aq_quantized") for metrics in result.train_metrics_clientapp.values())


def test_a_state_resumes() -> None:
    whole, half = group(), group()
    expected = AdaQuantStrategy(FedAvg(**ALL), private=True).start(whole, record(MODEL), num_rounds=2).arrays
    first = AdaQuantStrategy(FedAvg(**ALL), private=True)
    arrays = first.start(half, record(MODEL), num_rounds=1).arrays
    second = AdaQuantStrategy(FedAvg(**ALL), private=True)
    second.load_state_dict(first.state_dict())
    found = second.start(half, arrays, num_rounds=1).arrays
    assert all(np.array_equal(found[name].numpy(), expected[name].numpy()) for name in MODEL)


def test_a_run_ends_at_its_budget() -> None:
    made = AdaQuantStrategy(FedAvg(**ALL), private=Distributed(noise=1.0, epsilon=8.0))
    with pytest.raises(BudgetSpent):
        made.start(group(), record(MODEL), num_rounds=5)
    assert made.server is not None
    assert 0 < made.server.epsilon <= 8.0  # type: ignore[attr-defined] # it is a private one


@pytest.mark.parametrize("strategy", [FedMedian(), MultiKrum()])
def test_strategies_that_compare_clients_are_refused_by_name(strategy: Any) -> None:
    with pytest.raises(ConfigError, match=f"{type(strategy).__name__} compares the clients' models"):
        AdaQuantStrategy(strategy, private=True)


def test_what_does_not_go_together_is_refused() -> None:
    clipping = DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1.0, 1.0, 5)
    with pytest.raises(ConfigError, match="private = 'central'"):
        AdaQuantStrategy(clipping, private=True)
    with pytest.raises(ConfigError, match="sees sums only"):
        AdaQuantStrategy(FedAvg(), private=True, rule="4bit").start(group(), record(MODEL), num_rounds=1)
    with pytest.raises((ConfigError, EngineError), match="3 clients"):
        AdaQuantStrategy(FedAvg(**ALL), private=True).start(group(2), record(MODEL), num_rounds=1)
