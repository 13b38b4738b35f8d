"""ResNet-18 at a quarter of its width (d = 0.7 M) on 4,000 pictures of CIFAR-10, with BatchNorm."""

from collections.abc import Callable

import torch
from torch import nn

import adaquantfl as aq
from adaquantfl.training import catalogue, datasets, models

NARROW = 16  # channels of the first stage; the paper's model has 64
TRAIN, TEST = 4_000, 2_000


def narrow(clients: int, seed: int) -> aq.OwnTask:
    """A quarter of the width, i.i.d.: it goes to its floor in minutes."""
    return _task(lambda: models.resnet18(NARROW), clients, by_label=False)


def narrow_sorted(clients: int, seed: int) -> aq.OwnTask:
    """A quarter of the width, with pictures dealt out by label."""
    return _task(lambda: models.resnet18(NARROW), clients, by_label=True)


def _task(model: Callable[[], nn.Module], clients: int, by_label: bool) -> aq.OwnTask:
    data, spec = datasets.load("cifar-10"), catalogue.find("cifar-10")
    train_y = torch.as_tensor(data.train_y)
    order = torch.randperm(len(train_y))[:TRAIN]
    if by_label:
        order = order[torch.argsort(train_y[order], stable=True)]
    x = _floats(data.train_x[order.numpy()], spec.mean, spec.std)
    return aq.OwnTask(
        model=model,
        loss=nn.functional.cross_entropy,
        train=list(zip(x.chunk(clients), train_y[order].chunk(clients), strict=True)),
        test=(_floats(data.test_x[:TEST], spec.mean, spec.std), torch.as_tensor(data.test_y[:TEST])),
        classes=list(spec.classes),
    )


def _floats(pixels: object, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    x = torch.as_tensor(pixels).float() / 255
    return (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
