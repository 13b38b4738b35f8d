"""Logistic regression on the bundled pictures: 7,850 parameters."""

import torch
from torch import nn

import adaquantfl as aq
from adaquantfl.training import datasets


def task(clients: int, seed: int) -> aq.OwnTask:
    """Equal shares of the bundled sample of Fashion-MNIST."""
    data = datasets.load("fashion-mnist-sample")
    order = torch.randperm(len(data.train_y))
    train, test = (torch.as_tensor(x).float() / 255 for x in (data.train_x, data.test_x))
    x, y = train[order], torch.as_tensor(data.train_y)[order]
    return aq.OwnTask(
        model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10)),
        loss=nn.functional.cross_entropy,
        train=list(zip(x.chunk(clients), y.chunk(clients), strict=True)),
        test=(test, torch.as_tensor(data.test_y)),
        classes=[str(label) for label in range(10)],
    )
