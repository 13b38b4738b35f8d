"""Models as apps have them: bfloat16, frozen arrays, adapters, BatchNorm in arrays without names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg, Result, Strategy

import adaquantfl as aq
from adaquantfl.flower.batchnorm import statistics_by_place
from adaquantfl.flower.records import array_record
from adaquantfl.protocol.bfloat16 import narrowed, widened
from support.fake_flower import Arrays, Client, FakeGrid, arrays_of, final
from support.paper_strategy import paper_strategy

RNG = np.random.default_rng(4)
FINE, COARSE = aq.Fixed(bits=16), aq.Fixed(bits=1)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


def moved(number: int, name: str, array: Any) -> Any:
    noise = np.random.default_rng([number, *map(ord, name)]).standard_normal(array.shape)
    if array.dtype == np.dtype("V2"):
        return narrowed(widened(array) + 0.1 * noise)
    return (array + 0.01 * noise).astype(array.dtype) if array.dtype.kind == "f" else array + array.dtype.type(1)


class Training(Client):
    """seen: the models that it was given. change: (number, name, array) -> trained array."""

    def __init__(self, number: int, change: Any = moved, **options: Any) -> None:
        super().__init__(lambda name, array: change(number, name, array), **options)
        self.seen: list[Arrays] = []

    def _train(self, message: Any, context: Any) -> Any:
        self.seen.append(arrays_of(message))
        trained = {name: np.asarray(self.change(name, array)) for name, array in self.seen[-1].items()}
        reply = super()._train(message, context)
        reply.content["arrays"] = array_record(trained)
        return reply


def run(strategy: Strategy, group: list[Any], model: Arrays | ArrayRecord, rounds: int = 3) -> Result:
    first = model if isinstance(model, ArrayRecord) else array_record(model)
    return strategy.start(grid=FakeGrid(group), initial_arrays=first, num_rounds=rounds)


# ---------------------------------------------------------------------------------------- bfloat16


@pytest.mark.parametrize("downlink", ["exact", "late"])
def test_bfloat16_is_averaged_and_comes_back_as_bfloat16(downlink: str) -> None:
    model = {
        "w": narrowed(normal(40, 30)),
        "b": normal(7),
        "running_mean": narrowed(normal(5)),
        "half": normal(5).astype("f2"),
    }
    assert model["w"].dtype == np.dtype("V2")
    group = [Training(0), Training(1), Training(2, mods=())]  # one without the mod
    strategy = paper_strategy(FedAvg(), rule=FINE, downlink=downlink)
    result = run(strategy, group, model, 3)
    assert result.train_metrics_clientapp[3]["aq_quantized"] == 2
    assert result.arrays["w"].dtype == "bfloat16"
    after = final(result)
    assert after["w"].dtype == np.dtype("V2")
    # Clients always move by the same amount, so that the mean is known.
    steps = np.mean([moved(n, "b", np.zeros(7, "f4")) for n in range(3)], axis=0)
    np.testing.assert_allclose(after["b"], model["b"] + 3 * steps, atol=1e-4 if downlink != "late" else 0.05)
    tolerance = 0.05 if downlink != "late" else 1.0  # bfloat16 has 8 bits
    expected = widened(model["w"]) + 3 * np.mean(
        [0.1 * np.random.default_rng([n, ord("w")]).standard_normal((40, 30)) for n in range(3)], axis=0
    )
    np.testing.assert_allclose(widened(after["w"]), expected, atol=tolerance)


def test_all_clients_train_from_the_same_bfloat16_model() -> None:
    group = [Training(n) for n in range(3)]
    run(paper_strategy(FedAvg(), rule=COARSE), group, {"w": narrowed(normal(40, 30)), "b": normal(3)}, 3)
    for number in range(3):
        assert len({client.seen[number]["w"].tobytes() for client in group}) == 1
    assert group[0].seen[2]["w"].dtype == np.dtype("V2")


# ---------------------------------------------------------------------------------------- frozen arrays, adapters


def test_frozen_empty_and_integer_arrays_and_adapters() -> None:
    model = {
        "base.weight": normal(50, 40),
        "lora_A.weight": normal(4, 40),
        "lora_B.weight": np.zeros((50, 4), "f4"),
        "half": normal(6).astype("f2"),
        "empty": np.zeros((0, 3), "f4"),
        "mask": np.array([True, False]),
        "position_ids": np.arange(9),
    }

    def adapters(number: int, name: str, array: Any) -> Any:
        return moved(number, name, array) if "lora" in name or name == "half" else array

    result = run(paper_strategy(FedAvg(), rule=FINE), [Training(n, adapters) for n in range(3)], model, 3)
    after = final(result)
    plain = final(run(FedAvg(), [Training(n, adapters, mods=()) for n in range(3)], model, 3))
    assert list(after) == list(model)
    for name in ("base.weight", "empty", "mask", "position_ids"):
        np.testing.assert_allclose(after[name], model[name], rtol=1e-6)  # FedAvg itself rounds its mean of equal arrays
        assert after[name].dtype == model[name].dtype
    assert all(np.allclose(after[name], plain[name], atol=2e-3) for name in ("lora_A.weight", "lora_B.weight", "half"))


# ---------------------------------------------------------------------------------------- BatchNorm without names


def numbered(*arrays: Any) -> Arrays:
    return {str(place): np.asarray(array) for place, array in enumerate(arrays)}


ONES, ZEROS = np.ones(6, "f4"), np.zeros(6, "f4")
TRAINED = [normal(6) + 1, normal(6), normal(6), np.abs(normal(6)) + 0.1]
PLACES: dict[str, tuple[Arrays, list[str]]] = {
    "PyTorch": (numbered(normal(6, 3), ONES, ZEROS, ZEROS, ONES, np.array(0), normal(2, 6), normal(2)), ["3", "4"]),
    "PyTorch, a bias before": (numbered(normal(6, 3), normal(6), *TRAINED, np.array(9), normal(2, 6)), ["4", "5"]),
    "PyTorch, not affine": (numbered(normal(6, 3), ZEROS, ONES, np.array(0), normal(2, 6)), ["1", "2"]),
    "PyTorch without counters": (numbered(normal(6, 3), normal(6), *TRAINED, normal(2, 6)), ["4", "5"]),
    "Keras": (numbered(normal(3, 6), ZEROS, ONES, ZEROS, ZEROS, ONES, normal(6, 2), normal(2)), ["4", "5"]),
    "two LayerNorms": (numbered(normal(6, 3), ONES, ZEROS, ONES, ZEROS, normal(2, 6)), []),
    "none": (numbered(normal(6, 3), normal(6), normal(2, 6), normal(2)), []),
}


@pytest.mark.parametrize("kind", PLACES)
def test_batchnorms_statistics_are_found_by_their_places(kind: str, log: pytest.LogCaptureFixture) -> None:
    model, expected = PLACES[kind]
    assert statistics_by_place(model) == expected

    def steps(number: int, name: str, array: Any) -> Any:
        return np.abs(moved(number, name, array)) if name in expected else moved(number, name, array)

    group = [Training(n, steps) for n in range(3)]
    result = run(paper_strategy(FedAvg(), rule=COARSE), group, model, 2)
    plain = final(run(FedAvg(), [Training(n, steps, mods=()) for n in range(3)], model, 2))
    for name in expected:
        np.testing.assert_allclose(final(result)[name], plain[name], atol=1e-6)
        assert (final(result)[name] >= 0).all()
    found = "were found by their places: " + ", ".join(expected) if expected else "none looks like BatchNorm"
    assert log.text.count(found) == 1


def test_names_are_believed_and_so_is_the_user(log: pytest.LogCaptureFixture) -> None:
    run(paper_strategy(FedAvg()), [Training(n) for n in range(2)], {"w": normal(5), "b": normal(5)}, 1)
    given = paper_strategy(FedAvg(), exact=["0"])
    run(given, [Training(n) for n in range(2)], PLACES["PyTorch"][0], 1)
    assert "numbers for names" not in log.text
    assert given.server is not None
    assert given.server.current.layout.buffers == 18
