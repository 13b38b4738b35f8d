"""Model, data and training: plain PyTorch, nothing of Flower."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from adaquantfl.training import datasets, partitions

BATCH = 32


def build() -> nn.Module:
    """A small CNN with BatchNorm; the same weights in every process."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


@cache
def data() -> datasets.Dataset:
    """The sample of Fashion-MNIST that comes with adaquantfl."""
    return datasets.load("fashion-mnist-sample")


def pixels(x: object) -> Tensor:
    return (torch.as_tensor(x).float() / 255 - data().mean[0]) / data().std[0]


def train(net: nn.Module, client: int, clients: int, steps: int, lr: float, seed: int) -> tuple[float, int]:
    """Local SGD on a client's part of the data: its mean loss and the number of its examples."""
    mine = torch.as_tensor(partitions.partition(data().train_y, clients, "iid", seed=0)[client])
    x, y = pixels(data().train_x[mine]), torch.as_tensor(data().train_y[mine])
    generator = torch.Generator().manual_seed(seed)
    optimizer, total = torch.optim.SGD(net.parameters(), lr=lr), 0.0
    net.train()
    for _ in range(steps):
        batch = torch.randint(len(y), (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps, len(mine)


@torch.no_grad()
def accuracy(net: nn.Module) -> float:
    """On the test set."""
    net.eval()
    right = net(pixels(data().test_x)).argmax(1) == torch.as_tensor(data().test_y)
    return float(right.float().mean())
