"""Where data sets live on this machine, and how one is written there: whole or not at all.

A data set is one zip of .npy members. Zip keeps a CRC-32 of each member, and reading checks it.
"""

import io
import os
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

from ..errors import DataError
from .catalogue import Spec
from .layouts import Arrays, Bytes

# All that zipfile and NumPy raise on bytes that are not what they expect.
_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)


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


def read(spec: Spec) -> Arrays:
    """The cached arrays, their CRCs, types and shapes checked; DataError if they are missing or damaged."""
    path = path_of(spec)
    if not path.is_file():
        raise DataError(
            f"The data set {spec.name} is not on this machine ({path} is missing). {_remedy(spec, 'get it')}"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = Arrays(*(_member(archive, name) for name in Arrays._fields))
        _check_shapes(spec, arrays)
    except _DAMAGE as error:
        raise DataError(f"The data file {path} is damaged ({error}). {_remedy(spec, 'fetch it anew')}") from error
    return arrays


def write(path: Path, arrays: Arrays, compression: int = zipfile.ZIP_STORED) -> None:
    """Write the arrays to `path` in one step: a reader sees the old file or the new one, never a part.

    The bytes depend on the arrays only (members carry a fixed date), so the same data give the same file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", compression, compresslevel=9) as archive:
                for field, array in zip(Arrays._fields, arrays, strict=True):
                    info = zipfile.ZipInfo(f"{field}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                    info.compress_type = compression
                    info.create_system = 3  # else Windows and Unix write different bytes
                    with archive.open(info, "w") as member:
                        np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp's 0600 would hide a shared cache from other users
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _member(archive: zipfile.ZipFile, name: str) -> Bytes:
    # Read to the end, which checks the CRC, before NumPy sees a byte: its header is parsed as Python source.
    array: Bytes = np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
    return array


def _check_shapes(spec: Spec, arrays: Arrays) -> None:
    expected = ((spec.train, *spec.shape), (spec.train,), (spec.test, *spec.shape), (spec.test,))
    for name, array, shape in zip(Arrays._fields, arrays, expected, strict=True):
        if array.dtype != np.uint8 or array.shape != shape:
            raise ValueError(f"{name} is {array.dtype}{array.shape}, expected uint8{shape}")
    if max(arrays.train_y.max(), arrays.test_y.max()) >= len(spec.classes):
        raise ValueError(f"a label is not below {len(spec.classes)}")


def _remedy(spec: Spec, purpose: str) -> str:
    if spec.bundled:
        return "It ships with the package: install adaquantfl again."
    return f"To {purpose}, run: adaquantfl data get {spec.name}"
