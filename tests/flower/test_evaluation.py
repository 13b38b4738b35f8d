"""Evaluate messages with the exact downlink: small, right, and good for the next round."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian

import adaquantfl as aq
from adaquantfl.flower.records import KEY
from support.fake_flower import Arrays, Client, FakeGrid, arrays_of, record, same
from support.fake_flower import run as play
from support.paper_strategy import paper_strategy

RNG = np.random.default_rng(5)
MODEL: Arrays = {
    "w": RNG.standard_normal((40, 50)).astype("f4"),
    "half": RNG.standard_normal(30).astype("f2"),
    "running_var": np.ones(4, "f4"),
    "steps": np.array(3),
}
COARSE = aq.Fixed(bits=1)
run = partial(play, model=MODEL)


class Evaluating(Client):
    """Notes what it evaluates."""

    def __init__(self, number: int, **options: Any) -> None:
        def change(name: str, array: Any) -> Any:
            noise = np.random.default_rng([number, len(name)]).standard_normal(array.shape)
            return array if name == "steps" else (array + 0.01 * np.abs(noise)).astype(array.dtype)

        super().__init__(change, **options)
        self.seen = list[Arrays]()

    def _evaluate(self, message: Message, context: Any) -> Message:
        self.seen.append(arrays_of(message))
        content = RecordDict({"metrics": MetricRecord({"num-examples": 5, "accuracy": 0.5})})
        return Message(content, reply_to=message)


@pytest.mark.parametrize(("inner", "downlink"), [(FedAvg, "exact"), (FedMedian, "late")])
def test_every_client_evaluates_the_model_that_the_server_has(inner: Any, downlink: str) -> None:
    group = [Evaluating(number) for number in range(4)]
    models: list[ArrayRecord] = []

    class Watching(inner):  # type: ignore[misc]
        def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any) -> Any:
            models.append(arrays)
            return super().configure_evaluate(server_round, arrays, config, grid)

    grid = FakeGrid(group)
    result = run(paper_strategy(Watching(), rule=COARSE, downlink=downlink), grid, 4)
    assert result.evaluate_metrics_clientapp[4]["accuracy"] == 0.5
    for client in group:
        assert len(client.seen) == 4
        for arrays, model in zip(client.seen, models, strict=True):
            assert list(arrays) == list(MODEL)
            assert all(np.array_equal(array, model[name].numpy()) for name, array in arrays.items())
    assert any("arrays" not in message.content for message in grid.sent if message.metadata.message_type != "train")
    plain = run(paper_strategy(inner(), rule=COARSE, downlink="model"), FakeGrid([Evaluating(n) for n in range(4)]), 4)
    assert downlink == "late" or same(result, plain), "evaluation changes nothing"


def test_who_answered_a_quantized_train_message_evaluates_from_the_model_that_it_holds() -> None:
    result = run(paper_strategy(FedAvg(), rule=COARSE, scope="whole"), FakeGrid([Evaluating(n) for n in range(4)]), 2)
    first, second = (result.evaluate_metrics_clientapp[n]["aq_message_bytes_down"] for n in (1, 2))
    assert first < 2.5 * second
    assert first < 0.6 * result.train_metrics_clientapp[1]["aq_message_bytes_down"], "which has the whole model"


def test_a_client_that_forgot_its_state_evaluates_all_the_same() -> None:
    group = [Evaluating(n) for n in range(3)]
    grid, strategy = FakeGrid(group), paper_strategy(FedAvg(), rule=COARSE, downlink="exact")
    first = run(strategy, grid, 2)
    messages = list(strategy.configure_evaluate(3, first.arrays, ConfigRecord(), grid))
    assert all(KEY in message.content and not message.content.array_records for message in messages)
    for context in grid.contexts:
        context.state.clear()
    metrics = strategy.aggregate_evaluate(3, grid.send_and_receive(messages))
    assert metrics is not None
    assert metrics["accuracy"] == 0.5
    assert all(len(client.seen) == 3 for client in group)
    assert all(np.array_equal(group[0].seen[2][name], array.numpy()) for name, array in first.arrays.items())
    assert strategy.start(grid, first.arrays, num_rounds=1).train_metrics_clientapp[1]["aq_quantized"] == 3


def test_clients_without_the_mod_evaluate_whole_models_for_ever() -> None:
    group = [Evaluating(0), Evaluating(1, mods=()), Evaluating(2)]
    grid = FakeGrid(group)
    result = run(paper_strategy(FedAvg(), rule=aq.Fixed(bits=16), downlink="exact"), grid, 3)
    assert all(len(client.seen) == 3 for client in group)
    whole = {message.metadata.dst_node_id for message in grid.sent[-6:] if message.content.array_records}
    assert whole == {1001}
    assert result.train_metrics_clientapp[3]["aq_plain"] == 1
    assert result.evaluate_metrics_clientapp[3]["accuracy"] == 0.5


def test_a_node_whose_mod_was_taken_away_gets_whole_models_after_one_error() -> None:
    group = [Evaluating(n) for n in range(3)]
    grid, strategy = FakeGrid(group), paper_strategy(FedAvg(), rule=COARSE, downlink="exact")
    first = run(strategy, grid, 2)
    grid.clients = [*group[:2], Evaluating(2, mods=())]
    second = strategy.start(grid, first.arrays, num_rounds=3)
    counts = [(m["aq_quantized"], m["aq_plain"]) for m in second.train_metrics_clientapp.values()]
    assert counts == [(2, 0), (2, 1), (2, 1)]


def test_nodes_that_only_evaluate_are_recognised_by_their_answer() -> None:
    class Halves(FedAvg):
        def configure_train(self, *args: Any) -> Any:
            return [m for m in super().configure_train(*args) if m.metadata.dst_node_id < 1002]

        def configure_evaluate(self, *args: Any) -> Any:
            return [m for m in super().configure_evaluate(*args) if m.metadata.dst_node_id >= 1002]

    group = [Evaluating(n) for n in range(4)]
    grid = FakeGrid(group)
    run(paper_strategy(Halves(), rule=COARSE, downlink="exact"), grid, 3)
    evaluated = [m for m in grid.sent if m.metadata.message_type == "evaluate"]
    assert [bool(m.content.array_records) for m in evaluated] == [True, True, False, False, False, False]
    assert [len(client.seen) for client in group] == [0, 0, 3, 3]


def test_a_model_that_somebody_changed_is_evaluated_as_it_is() -> None:
    class Shifting(FedAvg):
        def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any) -> Any:
            moved = record({name: array.numpy() + array.numpy().dtype.type(1) for name, array in arrays.items()})
            return super().configure_evaluate(server_round, moved, config, grid)

    group = [Evaluating(n) for n in range(3)]
    result = run(paper_strategy(Shifting(), rule=COARSE, downlink="exact"), FakeGrid(group), 2)
    assert np.array_equal(group[0].seen[1]["w"], result.arrays["w"].numpy() + 1)
    assert result.train_metrics_clientapp[2]["aq_quantized"] == 3
