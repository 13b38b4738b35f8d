"""The models of the paper's experiments: a CNN, ResNet-18 in its ImageNet shape; and a small MLP.

A model is a pure function of its name and a seed: the global random state is neither read nor changed.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from .chance import repeatable

CLASSES = 10


def build(name: str, seed: int) -> nn.Module:
    """A fresh model on the CPU; the same name and seed give the same weights."""
    with repeatable(seed):
        return _MAKERS[name]()


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, CLASSES),
    )


def _mlp(hidden: int = 32) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around which the input is carried; a 1x1 one adapts it where the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(cast(Tensor, self.body(x)) + self.shortcut(x))


def resnet18(width: int = 64) -> nn.Module:
    """ResNet-18 from the global random state; `width`: channels of its first stage, doubled from stage to stage."""
    # He et al. 2016, table 1: a 7x7 stem, then four stages of two blocks.
    stages: list[nn.Module] = []
    channels = width
    for wider, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
        stages += [ResidualBlock(channels, wider * width, stride), ResidualBlock(wider * width, wider * width, 1)]
        channels = wider * width
    model = nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, CLASSES),
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            # Residual networks are trained from He's initialisation; PyTorch's default is narrower.
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


_MAKERS: dict[str, Callable[[], nn.Module]] = {
    "cnn": _cnn, "resnet18": resnet18, "mlp": _mlp, "mlp128": lambda: _mlp(128),
}  # fmt: skip
