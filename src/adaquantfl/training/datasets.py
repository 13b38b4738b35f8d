"""The data sets by name: load one, list them all, fetch one (`get`, in download.py)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from . import cache
from .catalogue import SPECS, find
from .download import get

__all__ = ["Dataset", "DatasetInfo", "available", "get", "load"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A classification data set in memory.

    Pixels are uint8 (N, C, H, W), labels int64 (N,). `mean` and `std` are per channel, of the training pixels
    scaled to [0, 1].
    """

    name: str
    train_x: npt.NDArray[np.uint8]
    train_y: npt.NDArray[np.int64]
    test_x: npt.NDArray[np.uint8]
    test_y: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class DatasetInfo:
    """A line of `adaquantfl data list`. `size` is in bytes: on disk if present, else once it is fetched."""

    name: str
    description: str
    licence: str
    present: bool
    where: Path | None
    size: int


def load(name: str) -> Dataset:
    """The data set of that name, from the cache or from the package.

    A missing or damaged one is a DataError that says how to get it.
    """
    spec = find(name)
    arrays = cache.read(spec)
    return Dataset(
        name=spec.name,
        train_x=arrays.train_x,
        train_y=arrays.train_y.astype(np.int64),
        test_x=arrays.test_x,
        test_y=arrays.test_y.astype(np.int64),
        classes=spec.classes,
        mean=spec.mean,
        std=spec.std,
    )


def available() -> list[DatasetInfo]:
    """Every data set that `load` knows, present on this machine or not."""
    infos = []
    for spec in SPECS.values():
        path = cache.path_of(spec)
        present = path.is_file()
        infos.append(
            DatasetInfo(
                name=spec.name,
                description=spec.description,
                licence=spec.licence,
                present=present,
                where=path if present else None,
                size=path.stat().st_size if present else spec.size,
            )
        )
    return infos
