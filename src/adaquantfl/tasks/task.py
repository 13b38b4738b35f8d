"""A task: a model, a loss, and who holds which examples. Everything the clients and the server train on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..config import Config
from ..errors import ConfigError
from . import datasets, models, partitions


@dataclass(frozen=True, eq=False)
class Examples:
    """Pictures as uint8 with their labels; a batch is normalised when it is taken."""

    x: npt.NDArray[np.uint8]
    y: npt.NDArray[np.int64]
    mean: Tensor
    std: Tensor

    def batch(self, indices: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these examples, as tensors."""
        pixels = torch.from_numpy(self.x[indices]).to(torch.float32).div_(255.0)
        return pixels.sub_(self.mean).div_(self.std), torch.from_numpy(self.y[indices])


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained. `parts[i]` are the indices of client i's examples in `train`."""

    build: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    train: Examples
    test: Examples
    parts: Sequence[npt.NDArray[np.int64]]
    classes: tuple[str, ...]

    @staticmethod
    def of(config: Config) -> Task:
        """The task that a configuration names."""
        models.check_fits(config.model, config.dataset)
        if config.batch_size == 1 and config.model == "resnet18":
            raise ConfigError("batch_size = 1: BatchNorm needs at least 2 samples a batch, and resnet18 has it.")
        data = datasets.load(config.dataset)
        mean = torch.tensor(data.mean).view(-1, 1, 1)
        std = torch.tensor(data.std).view(-1, 1, 1)
        return Task(
            build=lambda: models.build(config.model, config.seed),
            loss=nn.functional.cross_entropy,
            train=Examples(data.train_x, data.train_y, mean, std),
            test=Examples(data.test_x, data.test_y, mean, std),
            parts=partitions.partition(data.train_y, config.clients, config.partition, config.seed),
            classes=data.classes,
        )

    def label_counts(self) -> npt.NDArray[np.int64]:
        """How many examples of each class each client holds."""
        return partitions.label_counts(self.train.y, self.parts, len(self.classes))
