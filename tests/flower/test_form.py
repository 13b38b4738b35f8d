"""Models as apps have them: bfloat16, tied and frozen arrays, adapters, BatchNorm in arrays without names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Result, Strategy

import adaquantfl as aq
from adaquantfl.flower.form import Form, statistics_by_place
from adaquantfl.flower.records import array_record
from adaquantfl.protocol.bfloat16 import narrowed, widened
from support.fake_flower import Arrays, Client, FakeGrid, arrays_of
from support.paper_strategy import paper_strategy

RNG = np.random.default_rng(4)
FINE, COARSE = aq.Fixed(bits=16), aq.Fixed(bits=1)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


def moved(number: int, name: str, array: Any, seed: str = "") -> Any:
    noise = np.random.default_rng([number, *map(ord, seed or name)]).standard_normal(array.shape)
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


def final(result: Result) -> Arrays:
    return {name: array.numpy() for name, array in result.arrays.items()}


# ---------------------------------------------------------------------------------------- bfloat16


@pytest.mark.parametrize("downlink", ["model", "exact", "late"])
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


# ---------------------------------------------------------------------------------------- tied weights


def tied_model() -> Arrays:
    embedding = normal(30, 8)
    return {
        "embed.weight": embedding,
        "body": normal(8, 8),
        "head.weight": embedding.copy(),
        "zeros": np.zeros(4, "f4"),
    }


def tied_step(number: int, name: str, array: Any) -> Any:
    return moved(number, name, array, "tied" if name in ("embed.weight", "head.weight") else name)


@pytest.mark.parametrize("rule", [COARSE, FINE])
@pytest.mark.parametrize("downlink", ["model", "exact"])
def test_tied_weights_stay_tied_and_are_sent_once(rule: Any, downlink: str) -> None:
    model, group = tied_model(), [Training(n, tied_step) for n in range(3)]
    strategy = paper_strategy(FedAvg(), rule=rule, downlink=downlink)
    result = run(strategy, group, model, 3)
    after = final(result)
    assert list(after) == list(model)
    assert np.array_equal(after["embed.weight"], after["head.weight"])
    for client in group:
        for seen in client.seen:
            assert list(seen) == list(model), "names and order are the app's"
            assert np.array_equal(seen["embed.weight"], seen["head.weight"])
    assert strategy.server is not None
    assert strategy.server.current.layout.dimension == 30 * 8 + 64 + 4
    if rule is FINE:
        plain = final(run(FedAvg(), [Training(n, tied_step, mods=()) for n in range(3)], model, 3))
        assert all(np.allclose(after[name], plain[name], atol=1e-4) for name in model)


def test_arrays_that_only_began_equal_are_trained_one_by_one(log: pytest.LogCaptureFixture) -> None:
    model, group = tied_model(), [Training(n) for n in range(3)]
    strategy = paper_strategy(FedAvg(), rule=FINE)
    result = run(strategy, group, model, 4)
    plain = final(run(FedAvg(), [Training(n, mods=()) for n in range(3)], model, 4))
    assert all(np.allclose(array, plain[name], atol=1e-4) for name, array in final(result).items())
    counts = [metrics["aq_quantized"] for metrics in result.train_metrics_clientapp.values()]
    assert counts == [0, 3, 3, 3]
    assert log.text.count("travel one by one from now on") == 1


@pytest.mark.parametrize("plain", [0, 2])
def test_one_client_whose_copies_come_apart_unties_the_model(plain: int) -> None:
    model = tied_model()
    changes = [moved if n == plain else tied_step for n in range(3)]
    result = run(paper_strategy(FedAvg(), rule=FINE), [Training(n, c) for n, c in enumerate(changes)], model, 3)
    expected = final(run(FedAvg(), [Training(n, c, mods=()) for n, c in enumerate(changes)], model, 3))
    assert all(np.allclose(array, expected[name], atol=1e-4) for name, array in final(result).items())
    assert result.train_metrics_clientapp[3]["aq_quantized"] == 3


def test_noise_on_the_server_unties_copies_too() -> None:
    private = flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 1.0, 3)
    result = run(paper_strategy(private), [Training(n, tied_step) for n in range(3)], tied_model(), 3)
    assert not np.array_equal(final(result)["embed.weight"], final(result)["head.weight"])
    assert [m["aq_quantized"] for m in result.train_metrics_clientapp.values()][2] == 3


def test_untied_models_keep_error_feedback_and_their_bytes() -> None:
    strategy = paper_strategy(FedAvg(), quantizer="stc", rule=COARSE, sparsity=5)
    changes = [moved, tied_step, tied_step]
    run(strategy, [Training(n, c) for n, c in enumerate(changes)], tied_model(), 4)
    assert strategy.server is not None
    assert strategy.server.current.round == 4
    assert strategy.server.current.layout.dimension == 2 * 30 * 8 + 64 + 4


def test_a_saved_state_keeps_what_is_tied() -> None:
    model, group = tied_model(), [Training(n, tied_step) for n in range(3)]
    first, second = paper_strategy(FedAvg()), paper_strategy(FedAvg())
    result = run(first, group, model, 2)
    second.load_state_dict(first.state_dict())
    assert list(second.arrays) == list(model)
    assert all(np.array_equal(second.arrays[name].numpy(), array) for name, array in final(result).items())
    assert run(second, group, second.arrays, 1).train_metrics_clientapp[1]["aq_quantized"] == 3


def test_constant_arrays_are_not_tied() -> None:
    assert (
        Form.of({"a": np.zeros(5, "f4"), "b": np.zeros(5, "f4"), "c": np.ones(1, "f4"), "d": np.ones(1, "f4")})
        == Form()
    )
    assert Form.of({"a": np.arange(5), "b": np.arange(5)}) == Form(), "integers travel as they are"


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
