"""What is known about each data set and each model before PyTorch is loaded: names, shapes, sizes, checksums."""

from dataclasses import dataclass, replace
from math import prod

from ..errors import ConfigError, DataError
from ..names import unknown


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
    try:
        return SPECS[name]
    except (KeyError, TypeError):
        raise DataError(unknown("data set", name, SPECS)) from None


@dataclass(frozen=True)
class ModelInfo:
    """A model that `models.build` knows. `parameters` is the paper's d; `input_shape` is (C, H, W)."""

    name: str
    input_shape: tuple[int, int, int]
    parameters: int


MODELS: dict[str, ModelInfo] = {
    info.name: info
    for info in (
        ModelInfo("cnn", (1, 28, 28), 1_663_370),  # the paper's CNN for Fashion-MNIST
        ModelInfo("resnet18", (3, 32, 32), 11_181_642),  # the paper's model for CIFAR-10
        ModelInfo("mlp", (1, 28, 28), 25_450),  # one hidden layer of 32, for tests and many clients
    )
}


def find_model(name: str) -> ModelInfo:
    """The model of that name, or a ConfigError with the nearest one."""
    try:
        return MODELS[name]
    except (KeyError, TypeError):
        raise ConfigError(unknown("model", name, MODELS)) from None


def check_fits(model: str, data: str | tuple[int, ...]) -> None:
    """Refuse a model for a data set, or a (channels, height, width), that it is not made for."""
    info = find_model(model)
    shape = find(data).shape if isinstance(data, str) else tuple(data)
    if shape == info.input_shape:
        return
    fitting = [other.name for other in MODELS.values() if other.input_shape == shape]
    what = f"The data set {data}" if isinstance(data, str) else "This data set"
    remedy = f"Choose one of these models for it: {', '.join(fitting)}." if fitting else "No model here fits it."
    raise ConfigError(
        f"{what} has pictures of {_times(shape)}, but the model {model} expects {_times(info.input_shape)} "
        f"(channels x height x width). {remedy}"
    )


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape)
