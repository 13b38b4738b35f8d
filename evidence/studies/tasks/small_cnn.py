"""The paper's CNN at an eighth of its size: half the channels, a quarter of the hidden layer; 215,370 parameters."""

import torch
from torch import nn

import adaquantfl as aq
from adaquantfl.training import datasets


def model() -> nn.Module:
    """Two convolutions, each with a pooling and a ReLU, and two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def task(clients: int, seed: int) -> aq.OwnTask:
    """Equal shares of the bundled sample of Fashion-MNIST."""
    data = datasets.load("fashion-mnist-sample")
    order = torch.randperm(len(data.train_y))
    train, test = (torch.as_tensor(x).float().reshape(-1, 1, 28, 28) / 255 for x in (data.train_x, data.test_x))
    x, y = train[order], torch.as_tensor(data.train_y)[order]
    return aq.OwnTask(
        model=model,
        loss=nn.functional.cross_entropy,
        train=list(zip(x.chunk(clients), y.chunk(clients), strict=True)),
        test=(test, torch.as_tensor(data.test_y)),
        classes=[str(label) for label in range(10)],
    )
