"""Local training: plain SGD on mini-batches that seed, round and client alone decide, from named arrays to others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import adaquantfl as aq
from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs.config import Config, load_config
from adaquantfl.training import models
from adaquantfl.training.task import Pictures, Task
from adaquantfl.training.trainer import Trainer, one_thread
from support.own_tasks import CLASSIFIER, written
from support.rounds import Played

SMALL = {
    "model": "mlp",
    "clients": 3,
    "partition": "dirichlet(0.5)",
    "tau": 4,
    "batch_size": 16,
    "loss_samples": 64,
    "workers": 1,
}


@pytest.fixture
def small() -> Config:
    return load_config("demo", SMALL)


def trainer_of(config: Config) -> Trainer:
    return Trainer(config, Task.of(config))


def test_float32_is_plain_federated_averaging(small: Config) -> None:
    config = replace(small, rule="fp32")
    played = Played(config, 2)
    trainer = played.engine.player.trainer
    sizes = np.array(trainer.examples)
    model = models.build("mlp", config.seed)
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    with one_thread():
        for k in range(2):
            average = torch.zeros_like(weights, dtype=torch.float64)
            for client in range(config.clients):
                torch.nn.utils.vector_to_parameters(weights.clone(), model.parameters())
                for batch in trainer._batches(client, k):
                    x, y = trainer.task.train.batch(batch)
                    model.zero_grad()
                    torch.nn.functional.cross_entropy(model(x), y).backward()
                    with torch.no_grad():
                        for p in model.parameters():
                            p -= config.eta * p.grad
                local = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
                average += sizes[client] / sizes.sum() * local.double()
            weights = average.float()
    np.testing.assert_allclose(played.run.server.model.weights, weights.numpy(), rtol=1e-4, atol=1e-5)


def test_mini_batches_are_uniform_without_replacement_and_new_each_round(small: Config) -> None:
    trainer = trainer_of(small)
    part = trainer.task.parts[0]
    first = np.concatenate(list(trainer._batches(0, 0)))
    assert len(first) == small.tau * small.batch_size
    assert len(set(first)) == len(first)
    assert set(first) <= set(part)
    assert not np.array_equal(first, np.concatenate(list(trainer._batches(0, 1))))
    np.testing.assert_array_equal(first, np.concatenate(list(trainer_of(small)._batches(0, 0))))
    # A client with fewer samples than a round needs starts over when it has used them all.
    tiny = trainer_of(replace(small, clients=2000, partition="iid"))
    draws = np.concatenate(list(tiny._batches(7, 0)))
    assert len(draws) == small.tau * small.batch_size
    counts = np.bincount(np.searchsorted(tiny.task.parts[7], draws))
    assert counts.max() - counts.min() <= 1


def test_the_loss_sample_is_fixed_for_the_run(small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The losses of two rounds are comparable: they are of the same examples, before and after training."""
    samples: list[np.ndarray] = []

    def looked_at(config: Config, client: int, train_first: bool = False) -> np.ndarray:
        trainer = trainer_of(config)
        if train_first:
            trainer.train(client, trainer.weights(), round=3, eta=0.1)
        monkeypatch.setattr(trainer, "_total_loss", lambda weights, data, indices: samples.append(indices) or 0.0)
        trainer.loss(client, trainer.weights())
        return samples[-1]

    first = looked_at(small, 1)
    assert len(first) == len(set(first)) == small.loss_samples
    assert set(first) < set(Task.of(small).parts[1])
    np.testing.assert_array_equal(looked_at(small, 1, train_first=True), first)
    assert not np.array_equal(looked_at(replace(small, partition="iid", seed=1), 1), looked_at(small, 1))
    assert len(looked_at(replace(small, loss_samples=0), 1)) == len(Task.of(small).parts[1])


def resnet_task() -> Task:
    """ResNet-18 on noise."""
    rng = np.random.default_rng(0)
    x, half = rng.integers(0, 256, (24, 3, 32, 32), dtype=np.uint8), torch.full((3, 1, 1), 0.5)
    examples = Pictures(x, rng.integers(0, 10, 24), half, half)
    return Task(
        build=lambda: models.build("resnet18", 0),
        loss=torch.nn.functional.cross_entropy,
        train=examples,
        test=examples,
        parts=[np.arange(0, 8), np.arange(8, 24)],
    )


def test_the_flat_vector_and_the_model_are_one(small: Config) -> None:
    """Convolutions lie channels last in it: what is loaded must come out the same."""
    task = resnet_task()
    trainer = Trainer(replace(small, model="resnet18", dataset="cifar-10", clients=2), task)
    start = trainer.weights()
    trained = [name for name in start if name not in trainer.buffer_names]
    assert sum(start[name].size for name in trained) == 11_181_642
    assert len(trained) == 62
    fresh = task.build()
    x, _ = task.train.batch(np.arange(4))
    trainer._net.eval(), fresh.eval()
    with torch.no_grad(), one_thread():
        trainer._load({name: np.zeros_like(array) for name, array in start.items()})
        assert not trainer._net(x).any()
        trainer._load(start)
        np.testing.assert_allclose(trainer._net(x).numpy(), fresh(x).numpy(), rtol=1e-4, atol=1e-4)


def test_batchnorm_statistics_are_averaged_and_come_along(tmp_path: Path) -> None:
    path = written(tmp_path, CLASSIFIER)
    config = load_config(f"{path}:bag", {"clients": 2, "tau": 2, "batch_size": 8, "workers": 1, "downlink": "exact"})
    engine = LocalEngine(config)
    trainer = engine.player.trainer
    assert set(trainer.buffer_names) == {f"1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    start = trainer.weights()
    means = [trainer.train(client, start, 0, config.eta)[0]["1.running_mean"] for client in range(2)]
    played = Played(config, 1)
    weights = played.run.server.weights
    np.testing.assert_allclose(weights["1.running_mean"], (30 * means[0] + 31 * means[1]) / 61, rtol=1e-5)
    assert weights["1.num_batches_tracked"] == 2
    client = aq.Client(0)
    opened = client.open(played.run.server.order(0, holds=None, evaluate=True))
    assert opened["1.running_mean"].tobytes() == weights["1.running_mean"].tobytes()
