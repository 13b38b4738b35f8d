"""A run's state on disk: one file, replaced atomically, so that a kill leaves either the old or the new one.

The state is a plain tree of dictionaries, lists, arrays, bytes, numbers and text. Its arrays and bytes are entries of
an npz file. The rest is JSON that names them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from . import durable
from .errors import CheckpointError

FORMAT = 3
FILE = "state.npz"
Keep = Callable[[str, npt.NDArray[Any]], npt.NDArray[Any]]
_ARRAY, _BYTES = "$array", "$bytes"  # keys of the objects that stand for entries


def save(tree: Mapping[str, Any], folder: Path) -> Path:
    """Write a tree to the folder."""
    durable.make_folder(folder)

    def write(path: Path) -> None:
        with path.open("wb") as file:
            _write_tree(tree, file)

    durable.write(folder / FILE, write)
    return folder / FILE


def load(folder: Path, keep: Keep = lambda name, array: array) -> dict[str, Any] | None:
    """The tree in a folder; None where no checkpoint was written yet.

    keep: is given each array with its name, as it is read, and returns it; it may put it elsewhere than into memory.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            return _read_tree(file, str(path), keep)
    except (CheckpointError, MemoryError):
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # a damaged zip raises almost anything
        raise CheckpointError(
            f"{path} is damaged ({error}). Restore it from a copy, or remove the folder and start the run again."
        ) from error


def pack(tree: Mapping[str, Any]) -> bytes:
    """A tree as bytes.

    >>> unpack(pack({"a": [1, b"x", None]}))
    {'a': [1, b'x', None]}
    """
    file = BytesIO()
    try:
        _write_tree(tree, file)
    except ValueError:
        if not file.closed:  # it closes itself where it cannot grow, and NumPy then stumbles over that
            raise
        raise MemoryError from None
    return file.getvalue()


def unpack(data: bytes) -> dict[str, Any]:
    """The tree in bytes from another process; CheckpointError on anything else."""
    try:
        return _read_tree(BytesIO(data), "The state")
    except (CheckpointError, MemoryError):
        raise
    except Exception as error:
        raise CheckpointError(f"The state cannot be read ({error}).") from error


def check_array(file: IO[bytes], size: int) -> None:
    """Refuse an npy file of this many bytes whose header asks for other ones: ValueError, before memory is taken."""
    first = np.lib.format.read_magic(file) == (1, 0)
    read_header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    if math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError(f"an array of {size:,} bytes has a header of {dtype.name} in the shape {shape}")


def _write_tree(tree: Mapping[str, Any], file: IO[bytes]) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {}
    text = json.dumps({"format": FORMAT, "tree": _written(tree, arrays)})
    np.savez(file, meta=np.array(text), **arrays)  # type: ignore[arg-type] # its stub has no **arrays


def _read_tree(file: IO[bytes], name: str, keep: Keep = lambda name, array: array) -> dict[str, Any]:
    with ZipFile(file) as archive:
        entries = _Entries(archive, file.seek(0, SEEK_END))
        meta = json.loads(str(entries.take("meta")))
        if meta["format"] != FORMAT:
            raise CheckpointError(
                f"{name} has format {meta['format']}; this version reads {FORMAT}. Resume it with the version of "
                "adaquantfl that wrote it; reports read its history with any version."
            )
        tree: dict[str, Any] = _read(meta["tree"], entries, keep)
        return tree


class _Entries:
    """The arrays of an npz file, each of which is read once, so that they take no more memory than the file has."""

    def __init__(self, archive: ZipFile, size: int) -> None:
        if sum(entry.file_size for entry in archive.infolist()) > size:
            raise CheckpointError("The state is compressed, which `pack` never does.")
        self._archive, self._names = archive, {entry.filename for entry in archive.infolist()}

    def take(self, name: str) -> npt.NDArray[Any]:
        self._names.remove(f"{name}.npy")
        with self._archive.open(f"{name}.npy") as file:
            check_array(file, self._archive.getinfo(f"{name}.npy").file_size)
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)


def _written(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """The value for JSON; arrays and bytes are put aside under a name."""
    if isinstance(value, np.ndarray | bytes):
        name = f"part{len(arrays)}"
        arrays[name] = np.frombuffer(value, dtype=np.uint8) if isinstance(value, bytes) else value
        return {_BYTES if isinstance(value, bytes) else _ARRAY: name}
    if isinstance(value, Mapping):
        return {str(key): _written(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item, arrays) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _read(value: Any, entries: _Entries, keep: Keep) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value:
            return keep(value[_ARRAY], entries.take(value[_ARRAY]))
        if _BYTES in value:
            return entries.take(value[_BYTES]).tobytes()
        return {key: _read(item, entries, keep) for key, item in value.items()}
    return [_read(item, entries, keep) for item in value] if isinstance(value, list) else value
