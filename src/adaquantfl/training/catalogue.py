"""What is known about each data set and each model before PyTorch is loaded: names, shapes, sizes, checksums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from ..errors import ConfigError, DataError
from ..names import unknown

if TYPE_CHECKING:
    from .settings import Settings


@dataclass(frozen=True)
class Spec:
    """Everything that is fixed about a data set.

    `sha256` is of the arrays that are cached (`cache.digest`), so every source is held to the same bytes.
    """

    name: str
    description: str
    licence: str
    shape: tuple[int, int, int]
    train: int
    test: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sha256: str
    bundled: bool = False

    @property
    def size(self) -> int:
        """Bytes of pixels and labels, which is what the cache holds, except for a small header."""
        return (self.train + self.test) * (prod(self.shape) + 1)


_FASHION = Spec(
    name="fashion-mnist",
    description="70,000 grey 28x28 pictures of clothes, 10 classes",
    licence="MIT, Copyright (c) 2017 Zalando SE",
    shape=(1, 28, 28),
    train=60_000,
    test=10_000,
    classes=("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    mean=(0.2860,),
    std=(0.3530,),
    sha256="6a3a4f4382867139dd58d43e6ad3c6e8fc0ae56058cbbf2bec7d499951c8f524",
)
_CIFAR = Spec(
    name="cifar-10",
    description="60,000 colour 32x32 pictures of animals and vehicles, 10 classes",
    licence="none stated by its authors, who ask for a citation: Krizhevsky, 2009",
    shape=(3, 32, 32),
    train=50_000,
    test=10_000,
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    sha256="00dfa29bb5c4dbef60c46df1ce8097c4c9768687df466fff2bd71dc9f48eb172",
)
_SAMPLE = replace(
    _FASHION,
    name="fashion-mnist-sample",
    description="12,000 pictures of Fashion-MNIST, equally many of each class; in the package",
    train=10_000,
    test=2_000,
    mean=(0.2867,),
    std=(0.3534,),
    sha256="bf6810f6f8000d5437c90a66038a2e786ca8e7fc45951471caac409482f957a6",  # printed by scripts/make_sample.py
    bundled=True,
)
SPECS: dict[str, Spec] = {spec.name: spec for spec in (_FASHION, _CIFAR, _SAMPLE)}


def find(name: str) -> Spec:
    """The data set of that name, or a DataError with the nearest one."""
    if name not in SPECS:
        raise DataError(unknown("data set", name, SPECS))
    return SPECS[name]


# The pictures that each model of `models.build` takes: (channels, height, width).
MODELS: dict[str, tuple[int, int, int]] = {
    "cnn": (1, 28, 28),  # the paper's CNN for Fashion-MNIST, d = 1,663,370
    "resnet18": (3, 32, 32),  # the paper's model for CIFAR-10, d = 11,181,642
    "mlp": (1, 28, 28),  # one hidden layer of 32, for tests and many clients, d = 25,450
    "mlp128": (1, 28, 28),  # one hidden layer of 128, for the demo, d = 101,770
}


def check_fits(model: str, data: str) -> None:
    """Refuse a model for a data set that it is not made for."""
    if model not in MODELS:
        raise ConfigError(unknown("model", model, MODELS))
    expected, shape = MODELS[model], find(data).shape
    if shape == expected:
        return
    fitting = [name for name, taken in MODELS.items() if taken == shape]
    has, wanted = ("x".join(map(str, sides)) for sides in (shape, expected))
    raise ConfigError(
        f"The data set {data} has pictures of {has}, but the model {model} expects {wanted} (channels x height x "
        f"width). Choose one of these models for it: {', '.join(fitting)}."
    )


def check_task(config: Settings) -> None:
    """Refuse a task of ours before PyTorch is loaded, where its data set, model or partition does not exist or fit."""
    from . import datasets, partitions  # they read this module

    if config.task:
        return  # a task of the user's own says so itself, when it is built
    check_fits(config.model, config.dataset)
    if config.batch_size == 1 and config.model == "resnet18":
        raise ConfigError("batch_size = 1: resnet18 has BatchNorm, which needs at least 2 samples per batch.")
    spec = find(config.dataset)
    partitions.check_kind(config.partition)
    if config.examples > spec.train:
        raise ConfigError(f"examples = {config.examples}, but {spec.name} has {spec.train:,} to train on.")
    partitions.check_shares(config.examples or spec.train, config.clients)
    datasets.check_present(spec)
