"""Arrays that are not float32 have their bounds in Flower too, whether a client has the mod or sends plain weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp.strategy import FedAvg

from adaquantfl.flower import AdaQuantStrategy, quantize_mod
from support.costs import most_taken
from support.fake_flower import Arrays, Client, FakeGrid, record

CLIENTS, LIAR = 8, 3
MODEL: Arrays = {
    "w": np.linspace(-1, 1, 60, dtype=np.float32),
    "a.running_var": np.ones(4, np.float32),
    "b.running_var": np.ones(4, np.float64),
    "h.running_var": np.ones(4, np.float16),
    "num_batches_tracked": np.array(3, np.int64),
}
ATTACKS: dict[str, tuple[str, Any]] = {
    "float64": ("b.running_var", 1e299),
    "int64": ("num_batches_tracked", 58 * 10**16),
    "float16": ("h.running_var", 6e4),
    "float32": ("a.running_var", 1e30),
}
DEFENCES: dict[str, dict[str, Any]] = {
    "refuse": {"max_update_norm": "10x"},
    "refuse a number": {"max_update_norm": 1e6},
    "clip": {"max_update_norm": "2x", "norm_action": "clip"},
}
OURS, NONE = (quantize_mod,), ()  # mods of a client


def step(number: int, attack: str) -> Callable[[str, Any], Any]:
    def change(name: str, array: Any) -> Any:
        if number == LIAR and name == ATTACKS[attack][0]:
            return np.full_like(array, ATTACKS[attack][1])
        if array.dtype.kind == "i":
            return array + 10
        return (array + 0.1 * np.random.default_rng([number, len(name)]).random(array.shape)).astype(array.dtype)

    return change


@pytest.mark.parametrize(
    ("attack", "defence", "wrapped", "liar_mods", "mods"),
    [
        ("float64", "refuse", FedAvg, OURS, OURS),
        ("int64", "refuse", FedAvg, NONE, OURS),
        ("float16", "refuse a number", FedAvg, OURS, NONE),
        ("float32", "clip", FedAvg, NONE, NONE),
        ("int64", "clip", lambda: None, OURS, OURS),
        ("float64", "refuse a number", FedAvg, NONE, OURS),
        ("float32", "refuse", lambda: None, OURS, OURS),
        ("float16", "clip", FedAvg, NONE, NONE),
    ],
)
def test_one_client_moves_no_array_far(
    attack: str, defence: str, wrapped: Callable[[], Any], liar_mods: Sequence[Any], mods: Sequence[Any]
) -> None:
    clients = [Client(step(number, attack), mods=liar_mods if number == LIAR else mods) for number in range(CLIENTS)]
    strategy = AdaQuantStrategy(wrapped(), rule="8bit", downlink="exact", **DEFENCES[defence])
    result = strategy.start(grid=FakeGrid(clients), initial_arrays=record(MODEL), num_rounds=1)
    weights = {name: array.numpy() for name, array in result.arrays.items()}
    for name in ("a.running_var", "b.running_var", "h.running_var"):
        assert weights[name].dtype == MODEL[name].dtype
        assert np.abs(weights[name] - 1).max() < 0.2
    assert weights["num_batches_tracked"] == 13
    assert result.train_metrics_clientapp[1]["aq_refused"] == 1


@pytest.mark.parametrize("shape", [(2**33,), (2**31, 2**31), (5,)])
def test_an_array_whose_header_lies_refuses_its_client_before_memory_is_taken(shape: tuple[int, ...]) -> None:
    def lie(reply: Message) -> Message:
        file = BytesIO()
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        lying = Array("float32", (60,), "numpy.ndarray", file.getvalue() + bytes(240))
        for name, arrays in list(reply.content.array_records.items()):  # an evaluation has none
            reply.content[name] = ArrayRecord({**arrays, "w": lying})
        return reply

    grid = FakeGrid([Client(step(number, "int64"), mods=()) for number in (0, 1, 2)])
    grid.tamper[1] = lie
    strategy = AdaQuantStrategy(FedAvg(), rule="8bit")
    results = list[Any]()
    start = partial(strategy.start, grid=grid, initial_arrays=record(MODEL), num_rounds=1)
    assert most_taken(lambda: results.append(start())) < 10**7
    assert results[0].train_metrics_clientapp[1]["aq_refused"] == 1
