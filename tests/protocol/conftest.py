"""A small federation for the tests: the MLP on the bundled sample, or ResNet-18 on noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adaquantfl.runs.config import Config, load_config
from adaquantfl.training import models
from adaquantfl.training.task import Pictures, Task


@pytest.fixture
def small() -> Config:
    return load_config(
        "demo",
        {
            "model": "mlp",
            "clients": 3,
            "partition": "dirichlet(0.5)",
            "tau": 4,
            "batch_size": 16,
            "loss_samples": 64,
            "s0": 2,
        },
    )


@pytest.fixture
def noise_task() -> Task:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (24, 3, 32, 32), dtype=np.uint8)
    y = rng.integers(0, 10, 24)
    half = torch.full((3, 1, 1), 0.5)
    examples = Pictures(x, y, half, half)
    return Task(
        build=lambda: models.build("resnet18", 0),
        loss=torch.nn.functional.cross_entropy,
        train=examples,
        test=examples,
        parts=[np.arange(0, 8), np.arange(8, 24)],
        classes=tuple("abcdefghij"),
    )
