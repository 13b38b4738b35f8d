"""The clients' optimizers: what plain PyTorch does, from a fresh state in each round, on the device that was named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import adaquantfl as aq
from adaquantfl.runs.config import Config, load_config
from adaquantfl.training import trainer as trainer_module
from adaquantfl.training.task import Task
from adaquantfl.training.trainer import Arrays, Trainer, find_device, one_thread

Build = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
REFERENCES: dict[str, tuple[dict[str, Any], Build]] = {
    "momentum": (
        {"momentum": 0.9, "weight_decay": 0.01},
        lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=0.01),
    ),
    "adamw": ({"optimizer": "adamw", "weight_decay": 0.1}, lambda ps: torch.optim.AdamW(ps, lr=0.05, weight_decay=0.1)),
}


def small(**changes: Any) -> Config:
    settings = {"model": "mlp", "clients": 2, "tau": 4, "batch_size": 16, "loss_samples": 32, "workers": 1}
    return load_config("demo", {**settings, "rule": "4bit", **changes})


def trainer_of(config: Config) -> Trainer:
    return Trainer(config, Task.of(config))


def flat(weights: Arrays) -> np.ndarray:
    return np.concatenate([array.ravel() for array in weights.values()])


def reference(trainer: Trainer, build: Build) -> np.ndarray:
    """Round 0 of client 1 in plain PyTorch."""
    net = trainer.task.build()
    optimizer = build(list(net.parameters()))
    with one_thread():
        for batch in trainer._batches(1, 0):
            x, y = trainer.task.train.batch(batch)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy()


@pytest.mark.parametrize("name", REFERENCES)
def test_a_round_is_what_plain_pytorch_does(name: str) -> None:
    keys, build = REFERENCES[name]
    trainer = trainer_of(small(**keys))
    start = trainer.weights()
    trainer.train(0, start, round=7, eta=0.05)  # another client's round, which must leave nothing behind
    trained, _ = trainer.train(1, start, round=0, eta=0.05)
    np.testing.assert_allclose(flat(trained), reference(trainer, build), rtol=1e-4, atol=1e-6)


def test_a_step_runs_wholly_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """On PyTorch's meta device, which has shapes and no values: an operand left on the CPU would be an error."""
    config = small(optimizer="adamw", model="cnn")
    monkeypatch.setattr(trainer_module, "find_device", lambda name: torch.device("meta"))
    trainer = trainer_of(config)
    loss = trainer._step(*trainer.task.train.batch(np.arange(4)))
    assert loss.device.type == "meta"
    assert {p.device.type for p in trainer._net.parameters()} == {"meta"}


@pytest.mark.parametrize(("name", "words"), [("cuda", "0 CUDA devices"), ("cuda:3", "0 CUDA"), ("mps", "no Apple GPU")])
def test_a_device_that_is_not_there_is_refused(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(aq.ConfigError, match=f"{name}.*{words}.*device = 'cpu'"):
        find_device(name)
