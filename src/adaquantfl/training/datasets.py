"""The data sets by name, and the cache that holds them. `get` in download.py fetches one.

A data set is one .npz file of pixels and labels. It is written whole or not at all; reading checks its content against
the catalogue.
"""

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import durable
from ..errors import DataError
from .catalogue import Spec, find

Bytes: TypeAlias = npt.NDArray[np.uint8]


class Arrays(NamedTuple):
    """A data set as it is cached: pixels (N, C, H, W) and labels (N,), all uint8."""

    train_x: Bytes
    train_y: Bytes
    test_x: Bytes
    test_y: Bytes


@dataclass(frozen=True, eq=False)
class Dataset:
    """A classification data set in memory.

    Pixels are uint8 (N, C, H, W), labels int64 (N,). `mean` and `std` are per channel, of the training pixels
    scaled to [0, 1].
    """

    train_x: npt.NDArray[np.uint8]
    train_y: npt.NDArray[np.int64]
    test_x: npt.NDArray[np.uint8]
    test_y: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def load(name: str) -> Dataset:
    """The data set of that name, from the cache or from the package; read once for everybody in this process.

    A missing or damaged one is a DataError that says how to get it.
    """
    return _load(name, path_of(find(name)))


@lru_cache(maxsize=1)
def _load(name: str, path: Path) -> Dataset:
    spec = find(name)
    train_x, train_y, test_x, test_y = read(spec)
    labels = train_y.astype(np.int64), test_y.astype(np.int64)
    return Dataset(train_x, labels[0], test_x, labels[1], spec.classes, spec.mean, spec.std)


def folder() -> Path:
    """ADAQUANTFL_DATA, or the user's cache folder by the XDG rules (a relative XDG path does not count)."""
    if chosen := os.environ.get("ADAQUANTFL_DATA"):
        return Path(chosen).expanduser()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "adaquantfl"


def path_of(spec: Spec) -> Path:
    """The file that holds this data set, whether or not it is there."""
    if spec.bundled:
        return Path(__file__).parent / "data" / f"{spec.name.replace('-', '_')}.npz"
    return folder() / f"{spec.name}.npz"


def digest(arrays: Arrays) -> str:
    """SHA-256 of the types, shapes and bytes of all arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def read(spec: Spec) -> Arrays:
    """The cached arrays; DataError if they are missing or are not the published ones."""
    path = path_of(spec)
    check_present(spec)
    try:
        with np.load(path, allow_pickle=False) as members:
            arrays = Arrays(*(members[name] for name in Arrays._fields))
        damage = "" if digest(arrays) == spec.sha256 else "its content has another SHA-256 than the published data"
    except MemoryError:
        raise
    except Exception as error:  # damaged bytes break zipfile and NumPy in many ways
        damage = f"{type(error).__name__}: {error}"
    if damage:
        raise DataError(f"The data file {path} is damaged ({damage}). To fetch it again, {_remedy(spec)}")
    return arrays


def check_present(spec: Spec) -> None:
    """DataError where the data set is not on this machine; its content is not read."""
    path = path_of(spec)
    if not path.is_file():
        raise DataError(
            f"The data set {spec.name} is not on this machine ({path} is missing). To get it, {_remedy(spec)}"
        )


def _remedy(spec: Spec) -> str:
    return "install adaquantfl again, which brings it." if spec.bundled else f"run: adaquantfl data get {spec.name}"


def write(path: Path, arrays: Arrays, compressed: bool = False) -> None:
    """Write the arrays to `path` in one step: a reader sees the old file or the new one, never a part.

    The bytes depend on the arrays only, so the same data give the same file.
    """

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            (np.savez_compressed if compressed else np.savez)(file, **arrays._asdict())

    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write(path, save)
