"""A small model with BatchNorm: a float32 vector, statistics that travel as they are, and an integer."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self) -> None:
        torch.manual_seed(0)  # the server makes the model from its class
        super().__init__(nn.Linear(32, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU())
        self.append(nn.Linear(100, 4))


def data(seed: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Four classes around four points, the same points for all clients."""
    points = 1.5 * torch.randn(4, 32, generator=torch.Generator().manual_seed(7))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (size,), generator=draw)
    return points[labels] + 2 * torch.randn(size, 32, generator=draw), labels
