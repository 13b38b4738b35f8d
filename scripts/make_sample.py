"""Make the sample of Fashion-MNIST that ships with the package: equally many of each class, seeded.

Run it after `adaquantfl data get fashion-mnist`; the same data give the same sample.
"""

import sys

import numpy as np
import numpy.typing as npt

from adaquantfl.errors import DataError
from adaquantfl.training import datasets
from adaquantfl.training.catalogue import find
from adaquantfl.training.datasets import Arrays

SEED = 2017
SAMPLE, FULL = find("fashion-mnist-sample"), find("fashion-mnist")


def choose(labels: npt.NDArray[np.uint8], total: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Indices of `total` samples, the same number of each class, in the order of the full data set."""
    each = total // len(SAMPLE.classes)
    drawn = [rng.choice(np.flatnonzero(labels == label), each, replace=False) for label in range(len(SAMPLE.classes))]
    return np.sort(np.concatenate(drawn))


def sample(full: Arrays) -> Arrays:
    """The stratified sample of the full data set."""
    rng = np.random.default_rng(SEED)
    train = choose(full.train_y, SAMPLE.train, rng)
    test = choose(full.test_y, SAMPLE.test, rng)
    return Arrays(full.train_x[train], full.train_y[train], full.test_x[test], full.test_y[test])


def main() -> int:
    """Write the sample and print its checksum as it stands in training/catalogue.py."""
    try:
        arrays = sample(datasets.read(FULL))
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    path = datasets.path_of(SAMPLE)
    datasets.write(path, arrays, compressed=True)
    pixels = arrays.train_x / 255.0
    print(f"{path.name}: {path.stat().st_size:,} bytes, mean {pixels.mean():.4f}, std {pixels.std():.4f}")
    print(f"sha256={datasets.digest(arrays)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
