"""A task: a model, a loss, and who holds which examples. Everything the clients and the server train on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from . import datasets, models, partitions
from .catalogue import check_task
from .settings import Settings

Indices = npt.NDArray[np.int64]


class Examples(Protocol):
    """Inputs with their targets, by number."""

    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these examples, an example a row."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures as uint8 with their labels; a batch is normalised when it is taken."""

    x: npt.NDArray[np.uint8]
    y: Indices
    mean: Tensor
    std: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        pixels = torch.from_numpy(self.x[indices]).to(torch.float32).div_(255.0)
        return pixels.sub_(self.mean).div_(self.std), torch.from_numpy(self.y[indices])


def largest_is_right(outputs: Tensor, targets: Tensor) -> Tensor:
    """Which examples have their largest output at their class."""
    return outputs.argmax(1) == targets


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained. `parts[i]` are the indices of client i's examples in `train`."""

    build: Callable[[], nn.Module]
    loss: Callable[[Any, Tensor], Tensor]
    train: Examples
    test: Examples | None
    parts: Sequence[Indices]
    accuracy: Callable[[Any, Tensor], Tensor] | None = largest_is_right  # where None, the test set is for the loss

    @staticmethod
    def of(config: Settings) -> Task:
        """The task that a configuration names."""
        if config.task:
            from .load_own import load_own

            return load_own(config)
        check_task(config)
        data = datasets.load(config.dataset)
        labels = data.train_y[: config.examples or None]
        mean = torch.tensor(data.mean).view(-1, 1, 1)
        std = torch.tensor(data.std).view(-1, 1, 1)
        return Task(
            build=lambda: models.build(config.model, config.seed),
            loss=nn.functional.cross_entropy,
            train=Pictures(data.train_x[: len(labels)], labels, mean, std),
            test=Pictures(data.test_x, data.test_y, mean, std),
            parts=partitions.partition(labels, config.clients, config.partition, config.seed),
        )
