"""Differential privacy: what is aggregated keeps the norm that the noise is calibrated to."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Strategy

import adaquantfl as aq
from adaquantfl.errors import ConfigError
from adaquantfl.flower import AdaQuantStrategy, quantize_mod
from adaquantfl.flower.privacy import clipped
from support.fake_flower import Arrays, Client, FakeGrid, arrays_of
from support.fake_flower import run as play
from support.paper_strategy import paper_strategy

MODEL: Arrays = {"a": np.linspace(-1, 1, 3000, dtype="f4").reshape(60, 50), "b": np.linspace(-1, 1, 50)}
BOUND = 1.0
run = partial(play, model=MODEL)


class Watching(FedAvg):
    """Notes the norm of every update that it averages."""

    def __init__(self, model: Arrays) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.model, self.norms = model, list[float]()

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        self.model = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        for reply in replies:
            moved = [a.astype("f8") - self.model[n].astype("f8") for n, a in arrays_of(reply).items()]
            self.norms.append(float(np.sqrt(sum(np.sum(np.square(m)) for m in moved))))
        return super().aggregate_train(server_round, replies)


def fixed(inner: Strategy, noise: float = 0.0) -> Strategy:
    return flower.DifferentialPrivacyClientSideFixedClipping(inner, noise, clipping_norm=BOUND, num_sampled_clients=4)


def adaptive(inner: Strategy) -> Strategy:
    return flower.DifferentialPrivacyClientSideAdaptiveClipping(inner, 0.0, 4, initial_clipping_norm=BOUND)


def server_fixed(inner: Strategy) -> Strategy:
    return flower.DifferentialPrivacyServerSideFixedClipping(inner, 0.0, BOUND, 4)


def server_adaptive(inner: Strategy) -> Strategy:
    return flower.DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.0, 4, initial_clipping_norm=BOUND)


def clients(*mods: Any) -> list[Client]:
    def change(number: int) -> Any:
        def apply(name: str, array: Any) -> Any:
            if array.dtype.kind != "f":
                return array + array.dtype.type(1)
            noise = np.random.default_rng([number, len(name)]).standard_normal(array.shape)
            return (array + noise).astype(array.dtype)

        return apply

    return [Client(change(number), mods=mods) for number in range(4)]


@pytest.mark.parametrize(
    ("wrapper", "mod", "rule"),
    [(fixed, fixedclipping_mod, aq.AdaQuant(s0=2)), (adaptive, adaptiveclipping_mod, aq.Fixed(bits=16))],
)
def test_an_update_clipped_on_the_client_is_not_longer_when_it_is_averaged(wrapper: Any, mod: Any, rule: Any) -> None:
    inner = Watching(MODEL)
    strategy = paper_strategy(wrapper(inner), rule=rule)
    result = run(strategy, FakeGrid(clients(quantize_mod, mod)), 3)
    assert [result.train_metrics_clientapp[n]["aq_quantized"] for n in (1, 2, 3)] == [4, 4, 4]
    limits = [BOUND] * 12
    if wrapper is adaptive:  # all are clipped, so that the norm falls from round to round
        limits = [BOUND * np.exp(-0.2 * 0.5) ** (n // 4) for n in range(12)]
    assert all(norm <= limit * (1 + 1e-9) for norm, limit in zip(inner.norms, limits, strict=True)), inner.norms
    if isinstance(rule, aq.AdaQuant):
        assert result.train_metrics_clientapp[1]["aq_clipped"] == 4, "the quantized updates were longer"


def test_clients_without_our_mod_are_held_to_the_norm_too() -> None:
    inner = Watching(MODEL)
    run(paper_strategy(fixed(inner)), FakeGrid(clients()))  # nobody clips
    assert max(inner.norms) <= BOUND


def test_what_travels_as_it_is_stays_out_of_the_norm() -> None:
    """Defect 13: BatchNorm's counter, which Flower's clip cannot scale, shrank the whole update in every round."""
    model = {**MODEL, "running_var": np.ones(5, "f4"), "num_batches_tracked": np.array(0)}

    def change(name: str, array: Any) -> Any:
        return array + array.dtype.type(10) if name == "num_batches_tracked" else array + array.dtype.type(0.001)

    group = [Client(change, mods=(quantize_mod,)) for _ in range(4)]
    strategy = paper_strategy(fixed(FedAvg(fraction_evaluate=0.0)), rule=aq.Fixed(bits=16))
    result = run(strategy, FakeGrid(group), model=model)
    assert result.train_metrics_clientapp[1]["aq_clipped"] == 0
    np.testing.assert_allclose(result.arrays["a"].numpy(), model["a"] + 0.001, atol=1e-5)
    assert result.arrays["num_batches_tracked"].numpy() == 10


def test_statistics_count_in_the_norm_that_the_noise_is_made_for() -> None:
    rng = np.random.default_rng(5)
    model = {"w": np.zeros(400, "f4"), "running_var": np.zeros(400, "f4"), "num_batches_tracked": np.array(0)}
    arrays = {
        "w": rng.standard_normal(400).astype("f4"),
        "running_var": np.full(400, 0.03, "f4"),
        "num_batches_tracked": np.array(10),
    }
    found, share = clipped(arrays, model, 1.0, ["running_var", "num_batches_tracked"])
    assert share < 1
    assert 0.99 < np.hypot(np.linalg.norm(found["w"]), np.linalg.norm(found["running_var"])) <= 1.0
    np.testing.assert_array_equal(found["running_var"], arrays["running_var"])
    assert found["num_batches_tracked"] == 10


def test_a_round_in_which_every_client_is_clipped_warns(log: pytest.LogCaptureFixture) -> None:
    run(paper_strategy(fixed(Watching(MODEL))), FakeGrid(clients(quantize_mod, fixedclipping_mod)), 2)
    assert "the updates of all 4 clients were longer" in log.text


@pytest.mark.parametrize("kind", ["f2", "f4", "i4", "?"])
def test_clipping_ends_at_or_below_the_bound_in_every_type(kind: str) -> None:
    rng = np.random.default_rng(3)
    model, arrays = (
        {"w": (100 * rng.random(500)).astype(kind), "v": rng.random(40).astype("f4"), "one": np.array(rng.random())}
        for _ in range(2)
    )
    for bound in (1e-3, 0.7, 3.0, 1e9):
        found, share = clipped(arrays, model, bound)
        moved = [found[name].astype("f8") - model[name].astype("f8") for name in model]
        assert np.sqrt(sum(np.square(m).sum() for m in moved)) <= bound
        assert (share < 1) == (bound < 1e9) or kind == "?"
        assert all(isinstance(a, np.ndarray) and a.dtype == model[name].dtype for name, a in found.items())


@pytest.mark.parametrize("wrapper", [server_fixed, server_adaptive])
def test_clipping_on_the_server_sees_decoded_updates(wrapper: Any) -> None:
    inner = Watching(MODEL)
    run(paper_strategy(wrapper(inner)), FakeGrid(clients(quantize_mod)), 2)
    assert len(inner.norms) == 8
    assert max(inner.norms) <= BOUND * (1 + 1e-5)  # in float32, as without us


@pytest.mark.parametrize("wrapper", [adaptive, server_fixed])
def test_a_wrapper_around_ours_is_refused_with_what_to_do(wrapper: Any) -> None:
    strategy = wrapper(paper_strategy(FedAvg()))
    with pytest.raises(ConfigError, match=r"Put it inside: AdaQuantStrategy\(DifferentialPrivacy"):
        run(strategy, FakeGrid(clients(quantize_mod)))


def test_a_subclass_inside_a_wrapper_is_refused_too() -> None:
    class Own(AdaQuantStrategy):
        def configure_train(self, *arguments: Any) -> Any:
            return super().configure_train(*arguments)

    with pytest.raises(ConfigError, match="Put it inside"):
        run(server_fixed(Own(FedAvg(), rule="adaquant")), FakeGrid(clients(quantize_mod)))


def test_local_differential_privacy_is_quantized_after_its_noise() -> None:
    mod = LocalDpMod(clipping_norm=0.5, sensitivity=0.0, epsilon=1.0, delta=0.1)
    strategy = paper_strategy(FedAvg(fraction_evaluate=0.0), rule=aq.Fixed(bits=16))
    result = run(strategy, FakeGrid(clients(quantize_mod, mod)))
    moved = [result.arrays[name].numpy() - array for name, array in MODEL.items()]
    assert np.sqrt(sum(np.square(m).sum() for m in moved)) < 0.51
