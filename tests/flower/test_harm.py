"""Rules that survey what noise does: the app's own evaluate handler measures it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from adaquantfl.errors import ConfigError
from adaquantfl.flower import AdaQuantStrategy, quantize_mod
from adaquantfl.rules import CostAware
from support.fake_flower import Client, FakeGrid, arrays_of, record
from support.paper_strategy import paper_strategy

MODEL = {"w": np.zeros((30, 20), dtype=np.float32), "b": np.zeros(20, dtype=np.float32)}
STEP = np.random.default_rng(0).standard_normal((30, 20)).astype(np.float32)


def change(name: str, array: Any) -> Any:
    return array + (STEP if name == "w" else 0.1)


class Measuring(Client):
    """evaluate reports a loss that is far higher for any other model than the one that the round began with."""

    sharp, key = 1e9, "eval_loss"

    def _evaluate(self, message: Message, context: Context) -> Message:
        self.configs.append(dict(message.content.config_records["config"]))
        loss = 1.0 + self.sharp * float(np.square(arrays_of(message)["w"]).sum())
        metrics = MetricRecord({self.key: loss, "num-examples": 5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.configs: list[dict[str, Any]] = []
        super().__init__(*args, **settings)


def run(clients: list[Client], rounds: int = 1, **settings: Any) -> Any:
    strategy = paper_strategy(FedAvg(fraction_evaluate=0.0), rule=CostAware(s0=1))
    return strategy.start(FakeGrid(clients), record(MODEL), num_rounds=rounds, **settings)


def unchanged(result: Any) -> bool:
    return all(np.array_equal(array.numpy(), MODEL[name]) for name, array in result.arrays.items())


@pytest.mark.parametrize("key", ["eval_loss", "loss", "my_loss"])
def test_the_apps_own_evaluate_handler_measures_the_harm(key: str, caplog: pytest.LogCaptureFixture) -> None:
    clients = [Measuring(change) for _ in range(3)]
    for client in clients:
        client.key = key
    result = run(clients, train_config=ConfigRecord({"lr": 0.1}), evaluate_config=ConfigRecord({"batches": 7}))
    assert unchanged(result), "the noise would do harm from the start: the rule rejects the round"
    assert [len(client.configs) for client in clients] == [3, 3, 3], (
        "once without noise, once with it, once with its opposite"
    )
    assert all(config["batches"] == 7 and config["lr"] == 0.1 for client in clients for config in client.configs)
    assert "do not measure" not in caplog.text


def test_noise_that_does_no_harm_leaves_the_round_as_it_is() -> None:
    clients = [Measuring(change) for _ in range(3)]
    for client in clients:
        client.sharp = 0.0
    assert not unchanged(run(clients))


class Silent(Client):
    """evaluate has no loss."""


class Failing(Client):
    def _evaluate(self, message: Message, context: Context) -> Message:
        raise KeyError("test-set")


class OnlyTrains(Client):
    """An app without an evaluate handler."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.app = ClientApp()
        self.app.train(mods=[quantize_mod])(self._train)


class Diverged(Client):
    def _evaluate(self, message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"loss": float("nan")})}), reply_to=message)


class Nothing(Client):
    def _evaluate(self, message: Message, context: Context) -> Any:
        return None


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Diverged, "reports the loss nan"),
        (Nothing, "raised AttributeError"),
        (Silent, "reports no single metric"),
        (Failing, "raised KeyError: 'test-set'"),
        (OnlyTrains, "has no evaluate handler"),
    ],
)
def test_without_a_loss_the_log_says_what_the_rule_does_instead(
    kind: type[Client], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    clients = [kind(change) for _ in range(3)]
    with caplog.at_level(logging.WARNING):
        result = run(clients, rounds=11)
    assert not unchanged(result)
    said = [one.getMessage() for one in caplog.records if "do not measure" in one.getMessage()]
    assert len(said) == 1
    assert "3 of 3 clients" in said[0]
    assert "counts it as 0" in said[0]
    assert sentence in said[0]


def test_the_handler_leaves_no_trace() -> None:
    class Noting(Measuring):
        sharp = 0.0

        def _evaluate(self, message: Message, context: Context) -> Message:
            context.state["mine"] = ConfigRecord({"noisy": True})
            np.random.random(3)  # noqa: NPY002
            return super()._evaluate(message, context)

        def _train(self, message: Message, context: Context) -> Message:
            drawn.append(np.random.random())  # noqa: NPY002
            return super()._train(message, context)

    entered, drawn = [], list[float]()

    def lifespan(context: Context) -> Iterator[None]:
        entered.append(context.node_id)
        yield

    client = Noting(change)
    client.app.lifespan()(lifespan)
    np.random.seed(3)  # noqa: NPY002
    grid = FakeGrid([client])
    strategy = paper_strategy(FedAvg(fraction_evaluate=0.0, min_available_nodes=1, min_train_nodes=1), rule=CostAware())
    strategy.start(grid, record(MODEL), num_rounds=3)
    assert client.configs
    assert len(entered) == 3, "once for each train message"
    assert "mine" not in grid.contexts[0].state
    np.random.seed(3)  # noqa: NPY002
    assert drawn == [np.random.random() for _ in range(3)]  # noqa: NPY002


def test_settings_that_are_none_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="setting of AdaQuantStrategy"):
        AdaQuantStrategy(FedAvg(), schedule="cost-aware")
