"""Logistic regression on the bundled pictures, 7,850 parameters, with several partitions."""

import torch
from torch import nn

import adaquantfl as aq
from adaquantfl.training import datasets, partitions


def iid(clients: int, seed: int) -> aq.OwnTask:
    """Equal shares at random."""
    return _task(clients, seed, "iid")


def dirichlet(clients: int, seed: int) -> aq.OwnTask:
    """Classes by a Dirichlet distribution with alpha = 0.3."""
    return _task(clients, seed, "dirichlet(0.3)")


def sorted_labels(clients: int, seed: int) -> aq.OwnTask:
    """One or two classes per client."""
    return _task(clients, seed, "sorted")


def _task(clients: int, seed: int, partition: str) -> aq.OwnTask:
    data = datasets.load("fashion-mnist-sample")
    train, test = (torch.as_tensor(x).float() / 255 for x in (data.train_x, data.test_x))
    labels = torch.as_tensor(data.train_y)
    parts = [torch.as_tensor(part) for part in partitions.partition(data.train_y, clients, partition, seed)]
    return aq.OwnTask(
        model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10)),
        loss=nn.functional.cross_entropy,
        train=[(train[part], labels[part]) for part in parts],
        test=(test, torch.as_tensor(data.test_y)),
        classes=[str(label) for label in range(10)],
    )
