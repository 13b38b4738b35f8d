"""What is known beforehand about each data set: its shape, its words, and the checksums of its raw files.

The md5s are of the unpacked files as the authors publish them, so every source is held to the same bytes.
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

from ..errors import DataError
from ..names import unknown


@dataclass(frozen=True)
class RawFile:
    """One unpacked file of a data set as its authors publish it."""

    name: str
    size: int
    md5: str


@dataclass(frozen=True)
class Spec:
    """Everything that is fixed about a data set. `files` are in the order of its layout (see layouts.py)."""

    name: str
    description: str
    licence: str
    layout: Literal["idx", "cifar"]
    shape: tuple[int, int, int]
    train: int
    test: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    files: tuple[RawFile, ...]
    bundled: bool = False

    @property
    def size(self) -> int:
        """Bytes of pixels and labels, which is what the cache holds, except for a small header."""
        return (self.train + self.test) * (prod(self.shape) + 1)


_FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_CIFAR_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_BATCH = 10_000 * 3073  # a CIFAR-10 batch: 10,000 records of a label byte and 3 x 32 x 32 pixels

SPECS: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        Spec(
            name="fashion-mnist",
            description="70,000 grey 28x28 pictures of clothes, 10 classes",
            licence="MIT, Copyright (c) 2017 Zalando SE",
            layout="idx",
            shape=(1, 28, 28),
            train=60_000,
            test=10_000,
            classes=_FASHION_CLASSES,
            mean=(0.2860,),
            std=(0.3530,),
            files=(
                RawFile("train-images-idx3-ubyte", 47_040_016, "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
                RawFile("train-labels-idx1-ubyte", 60_008, "9018921c3c673c538a1fc5bad174d6f9"),
                RawFile("t10k-images-idx3-ubyte", 7_840_016, "8181f5470baa50b63fa0f6fddb340f0a"),
                RawFile("t10k-labels-idx1-ubyte", 10_008, "15d484375f8d13e6eb1aabb0c3f46965"),
            ),
        ),
        Spec(
            name="cifar-10",
            description="60,000 colour 32x32 pictures of animals and vehicles, 10 classes",
            licence="none stated by its authors, who ask for a citation: Krizhevsky, 2009",
            layout="cifar",
            shape=(3, 32, 32),
            train=50_000,
            test=10_000,
            classes=_CIFAR_CLASSES,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
            files=(
                RawFile("data_batch_1.bin", _BATCH, "5dd7e06a14cb22eb9f671a540d1b7c25"),
                RawFile("data_batch_2.bin", _BATCH, "5ea93a67294ea407fff1d09f752e9692"),
                RawFile("data_batch_3.bin", _BATCH, "942cd6a4bcdd0dd3c604fbe906cb4421"),
                RawFile("data_batch_4.bin", _BATCH, "ae636b3ba5c66a11e91e8cb52e771fcb"),
                RawFile("data_batch_5.bin", _BATCH, "53f37980c15c3d472c316c40844f3f0d"),
                RawFile("test_batch.bin", _BATCH, "803d5f7f4d78ea53de84dbe85f74fb6d"),
            ),
        ),
        Spec(
            name="fashion-mnist-sample",
            description="12,000 pictures of Fashion-MNIST, equally many of each class; in the package",
            licence="MIT, Copyright (c) 2017 Zalando SE",
            layout="idx",
            shape=(1, 28, 28),
            train=10_000,
            test=2_000,
            classes=_FASHION_CLASSES,
            mean=(0.2867,),
            std=(0.3534,),
            # Written by scripts/make_sample.py, which prints these lines.
            files=(
                RawFile("train-images-idx3-ubyte", 7_840_016, "431386ae1f3f9464b9c8e17206a9cfe7"),
                RawFile("train-labels-idx1-ubyte", 10_008, "8981190f42ceb44a6a7a2e8254c7201a"),
                RawFile("t10k-images-idx3-ubyte", 1_568_016, "b9dc8864220c2d65cf175bc6336e6175"),
                RawFile("t10k-labels-idx1-ubyte", 2_008, "936c4ff61870106ed595be39f924b364"),
            ),
            bundled=True,
        ),
    )
}


def find(name: str) -> Spec:
    """The data set of that name, or a DataError with the nearest one."""
    try:
        return SPECS[name]
    except (KeyError, TypeError):
        raise DataError(unknown("data set", name, SPECS)) from None
