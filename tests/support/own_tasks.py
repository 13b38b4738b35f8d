"""Task files of a user's own, for the tests: whole ones, and ones with a fault."""

from __future__ import annotations

from pathlib import Path

REGRESSION = """
import torch
from torch import nn

import adaquantfl as aq


def task(clients: int, seed: int) -> aq.OwnTask:
    parts, rows = [], 0
    for client in range(clients):
        x = torch.randn(20 + 30 * client, 6, dtype=torch.float64)  # clients of unequal size, in double precision
        parts.append((x.numpy(), (x[:, :1] * 3 + x[:, 1:2] ** 2).numpy()))
    x = torch.randn(50, 6)
    return aq.OwnTask(
        model=nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1)),
        loss=nn.functional.mse_loss,
        train=parts,
        test=(x, x[:, :1] * 3 + x[:, 1:2] ** 2),
    )
"""

CLASSIFIER = """
import torch
from torch import nn
from torch.utils.data import Dataset

from adaquantfl import OwnTask


class Tokens(Dataset):
    def __init__(self, size):
        self.x = torch.randint(0, 20, (size, 5))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], int(self.x[i].sum() > 50)


def bag(clients, seed):
    return OwnTask(
        model=lambda: nn.Sequential(nn.EmbeddingBag(20, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)),
        loss=nn.CrossEntropyLoss(),
        train=[Tokens(30 + client) for client in range(clients)],
        test=Tokens(40),
        classes=("small", "<large>"),
    )
"""


def written(folder: Path, source: str, name: str = "mine.py") -> Path:
    """The file with this source."""
    path = folder / name
    path.write_text(source, encoding="utf-8")
    return path
