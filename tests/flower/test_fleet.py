"""Fleets as they are: without the mod, of other versions, with other mods. Rounds continue; the log says so once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.clientapp.mod import LocalDpMod, arrays_size_mod, fixedclipping_mod, message_size_mod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg, Result, Strategy

import adaquantfl as aq
from adaquantfl.errors import EngineError
from adaquantfl.flower import quantize_mod
from support.fake_flower import Arrays, Client, FakeGrid, record
from support.paper_strategy import paper_strategy

MODEL: Arrays = {"w": np.linspace(-1, 1, 300, dtype="f4"), "b": np.linspace(-1, 1, 9, dtype="f4")}
FINE = aq.Fixed(bits=16)


def clients(count: int, *mods: Any) -> list[Client]:
    return [Client(lambda _, array, k=k: array + np.float32(0.01 * (k + 1)), mods=mods) for k in range(count)]


def run(strategy: Strategy, grid: FakeGrid, rounds: int = 1, **options: Any) -> Result:
    return strategy.start(grid=grid, initial_arrays=record(MODEL), num_rounds=rounds, **options)


def close(a: Result, b: Result) -> bool:
    return all(np.allclose(array.numpy(), b.arrays[name].numpy(), atol=2e-5) for name, array in a.arrays.items())


def test_part_of_a_fleet_may_be_without_the_mod(log: pytest.LogCaptureFixture) -> None:
    group = [*clients(2, quantize_mod), *clients(4)[2:]]
    result = run(paper_strategy(FedAvg(), rule=FINE), FakeGrid(group), 3)
    assert close(result, run(FedAvg(), FakeGrid(clients(4)), 3))
    for metrics in result.train_metrics_clientapp.values():
        assert (metrics["aq_quantized"], metrics["aq_plain"], metrics["aq_failed"]) == (2, 2, 0)
    assert log.text.count("2 of 4 clients sent plain weights (nodes 1002, 1003)") == 1


def test_a_whole_fleet_without_the_mod_trains_and_the_log_says_so_once(log: pytest.LogCaptureFixture) -> None:
    result = run(paper_strategy(FedAvg()), FakeGrid(clients(4)), 3)
    assert close(result, run(FedAvg(), FakeGrid(clients(4)), 3))
    assert log.text.count("In round 1, 4 of 4 clients sent plain weights") == 1


def test_a_late_joiner_is_taken_as_it_comes() -> None:
    strategy, few, all_of_them = (
        paper_strategy(FedAvg(), downlink="exact", rule=FINE),
        FakeGrid(clients(4, quantize_mod)[:2]),
        FakeGrid(clients(4, quantize_mod)),
    )
    first = run(strategy, few, 2)
    all_of_them.contexts[:2] = few.contexts
    result = strategy.start(all_of_them, first.arrays, num_rounds=2)
    assert [result.train_metrics_clientapp[n]["aq_quantized"] for n in (1, 2)] == [4, 4]


# ---------------------------------------------------------------------------------------- nobody can be used


@pytest.mark.parametrize(
    ("mod", "says"),
    [
        (fixedclipping_mod, "fixedclipping_mod expects exactly one ConfigRecord"),
        (LocalDpMod(0.05, 0.0, 1.0, 0.1), "LocalDpMod expects exactly one ArrayRecord"),
    ],
)
def test_another_mod_before_ours_ends_the_run_with_what_to_do(mod: Any, says: str) -> None:
    grid = FakeGrid(clients(3, mod, quantize_mod))
    strategy = DifferentialPrivacyClientSideFixedClipping(FedAvg(), 0.0, clipping_norm=0.05, num_sampled_clients=3)
    with pytest.raises(EngineError, match=rf"(?s){says}.*Put quantize_mod first"):
        run(paper_strategy(strategy), grid, 2)


@pytest.mark.parametrize("mods", [(message_size_mod, quantize_mod), (quantize_mod, arrays_size_mod)])
def test_mods_that_only_look_work_in_both_orders(mods: tuple[Any, ...]) -> None:
    result = run(paper_strategy(FedAvg(), rule=FINE), FakeGrid(clients(4, *mods)), 2)
    assert result.train_metrics_clientapp[2]["aq_quantized"] == 4


def fail(_: str, array: Any) -> Any:
    raise RuntimeError("out of luck")


@pytest.mark.parametrize("model", [MODEL, {"0": np.arange(9, dtype="u1")}], ids=["with orders", "without"])
def test_a_round_in_which_everybody_fails_ends_the_run_with_the_reasons(model: Arrays) -> None:
    with pytest.raises(EngineError, match=r"Round 1: none of the 3 clients can be used\. By node: .*out of luck"):
        paper_strategy(FedAvg()).start(FakeGrid([Client(fail)] * 3), record(model), num_rounds=1)


def test_a_round_in_which_nobody_answers_ends_the_run() -> None:
    grid = FakeGrid(clients(3, quantize_mod))
    grid.order = []
    with pytest.raises(EngineError, match="Nobody answered in time"):
        run(paper_strategy(FedAvg()), grid)


# ---------------------------------------------------------------------------------------- the app's own things


def test_the_users_config_can_be_used_again_without_us() -> None:
    config = ConfigRecord({"lr": 0.1})
    run(paper_strategy(FedAvg()), FakeGrid(clients(3, quantize_mod)), train_config=config)
    assert set(config) == {"lr", "server-round"}
    run(FedAvg(), FakeGrid(clients(3, quantize_mod)), train_config=config)


def test_what_the_wrapped_strategy_can_do_can_be_asked_of_ours() -> None:
    class Own(FedAvg):
        def set_save_path_and_run_dir(self, path: str) -> None:
            self.path = path

    strategy = paper_strategy(Own(fraction_train=0.5))
    strategy.set_save_path_and_run_dir("here")
    assert (strategy.path, strategy.fraction_train) == ("here", 0.5)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = strategy.no_such_thing
