"""Claims about fetching: order of sources, distrust of all of them, and what is left behind. No network."""

import gzip
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adaquantfl.errors import DataError
from adaquantfl.training import datasets, download
from adaquantfl.training.catalogue import Spec
from adaquantfl.training.datasets import Arrays, load
from adaquantfl.training.download import SOURCES, Source, get

Tiny = tuple[Spec, Arrays, dict[str, bytes]]
Site = tuple[str, dict[str, bytes]]
TarOf = Callable[[Path, dict[str, bytes]], Path]


def gives(title: str, arrays: Arrays) -> Source:
    return Source(title, lambda folder: arrays)


def fails(title: str, error: BaseException) -> Source:
    def read(folder: Path) -> Arrays:
        (folder / "half-done").write_bytes(b"half")
        raise error

    return Source(title, read)


def test_the_first_source_with_the_published_data_is_cached(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    _, arrays, _ = fashion
    altered = arrays.train_x.copy()
    altered[-1, -1, -1, -1] ^= 1
    chosen = (fails("a", OSError("down")), gives("altered", arrays._replace(train_x=altered)), gives("true", arrays))
    monkeypatch.setitem(SOURCES, "fashion-mnist", chosen)
    heard: list[str] = []
    path = get("fashion-mnist", progress=lambda what, done, total: heard.append(what))
    np.testing.assert_array_equal(load("fashion-mnist").train_x, arrays.train_x)
    assert [entry.name for entry in path.parent.iterdir()] == ["fashion-mnist.npz"]
    assert "fashion-mnist: its content is not the published data set (another SHA-256)" in heard


def test_all_failures_are_listed_with_their_reasons(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, arrays, _ = fashion
    chosen = (
        gives("a liar", arrays._replace(train_y=arrays.train_y[::-1])),
        fails("a half", FileNotFoundError(2, "no such file", "t10k-images-idx3-ubyte.gz")),
        fails("a broken parser", RecursionError("too deep")),
        fails("no pooch", ModuleNotFoundError("No module named 'pooch'", name="pooch")),
        Source("the site", lambda folder: arrays, "http://127.0.0.1:1/", {"file.gz": "0" * 64}),
    )
    monkeypatch.setitem(SOURCES, "fashion-mnist", chosen)
    with pytest.raises(DataError) as caught:
        get("fashion-mnist")
    said = str(caught.value)
    assert "a liar: its content is not the published data set" in said
    assert "a half: t10k-images-idx3-ubyte.gz is missing" in said
    assert "a broken parser: it cannot be read (RecursionError: too deep)" in said
    assert "no pooch: pooch is not installed: pip install 'adaquantfl[train]'" in said
    assert "the site: file.gz: the site cannot be reached" in said
    assert said.endswith(f"or copy {datasets.path_of(spec)} from a machine that has it.")
    assert list(datasets.folder().iterdir()) == []


def test_get_fetches_nothing_when_the_data_is_there(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", (gives("a", fashion[1]),))
    path = get("fashion-mnist")
    before = path.stat()
    monkeypatch.setitem(SOURCES, "fashion-mnist", ())
    assert get("fashion-mnist") == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(DataError, match="could not be fetched"):
        get("fashion-mnist", force=True)
    assert len(load("fashion-mnist").train_x), "a failed get must leave the good data alone"


def test_interrupted_get_leaves_nothing(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", (fails("a", KeyboardInterrupt()),))
    with pytest.raises(KeyboardInterrupt):
        get("fashion-mnist")
    assert list(datasets.folder().iterdir()) == []


def test_folder_that_cannot_be_made_is_explained(
    fashion: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ADAQUANTFL_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match=r"cannot be written.*ADAQUANTFL_DATA"):
        get("fashion-mnist")


def served(name: str, place: int, files: dict[str, bytes], site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source at this place is a local site with these files, and it is the only one."""
    site[1].update({f"/{file}": content for file, content in files.items()})
    published = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    source = replace(SOURCES[name][place], site=f"{site[0]}/", files=published)
    monkeypatch.setitem(SOURCES, name, (source,))


def test_fashion_mnist_comes_from_its_site(fashion: Tiny, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{name}.gz": gzip.compress(content) for name, content in fashion[2].items()}
    served("fashion-mnist", 0, files, site, monkeypatch)
    heard: list[tuple[str, int, int]] = []
    get("fashion-mnist", progress=lambda *step: heard.append(step))
    packed = len(files["train-images-idx3-ubyte.gz"])
    assert ("train-images-idx3-ubyte.gz", packed, packed) in heard
    np.testing.assert_array_equal(load("fashion-mnist").test_x, fashion[1].test_x)


def test_fashion_mnist_comes_from_debians_package(
    fashion: Tiny, site: Site, tar_of: TarOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{name}.gz": gzip.compress(content) for name, content in fashion[2].items()}
    content = tar_of(tmp_path / "data", files).read_bytes()
    package = b"!<arch>\n" + b"data.tar.gz/".ljust(60) + content
    served("fashion-mnist", 2, {download.FASHION_DEB: package}, site, monkeypatch)
    get("fashion-mnist")
    np.testing.assert_array_equal(load("fashion-mnist").test_x, fashion[1].test_x)


@pytest.mark.parametrize(("page", "reason"), [(None, "404 Client Error"), (b"altered", "does not match")])
def test_a_site_without_the_published_files_is_a_reason(
    fashion: Tiny, site: Site, page: bytes | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{name}.gz": gzip.compress(content) for name, content in fashion[2].items()}
    served("fashion-mnist", 0, files, site, monkeypatch)
    site[1]["/t10k-labels-idx1-ubyte.gz"] = page  # type: ignore[assignment]  # None is a page that is not there
    with pytest.raises(DataError, match=rf"t10k-labels-idx1-ubyte.gz: .*{reason}"):
        get("fashion-mnist")


def cifar_npm_members(arrays: Arrays) -> dict[str, bytes]:
    """The members of the npm package: a PNG a batch with one picture a row, and two lists of labels."""
    pixels = {f"data_batch_{number}": batch for number, batch in enumerate(np.split(arrays.train_x, 5), 1)}
    members = {
        "train_lables.json": json.dumps(arrays.train_y.tolist()).encode(),
        "test_lables.json": json.dumps(arrays.test_y.tolist()).encode(),
    }
    for name, batch in {**pixels, "test_batch": arrays.test_x}.items():
        rows = np.ascontiguousarray(batch.transpose(0, 2, 3, 1)).reshape(len(batch), 1024, 3)
        buffer = io.BytesIO()
        Image.fromarray(rows).save(buffer, "png")
        members[f"{name}.png"] = buffer.getvalue()
    return members


@pytest.mark.parametrize(("place", "archive"), [(0, download.CIFAR_ARCHIVE), (1, download.CIFAR_NPM)])
def test_both_archives_of_cifar_give_the_same_data(
    cifar: Tiny, site: Site, tar_of: TarOf, tmp_path: Path, place: int, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, arrays, raw = cifar
    content = tar_of(tmp_path / "archive", cifar_npm_members(arrays) if place else raw).read_bytes()
    served("cifar-10", place, {archive: content}, site, monkeypatch)
    get("cifar-10")
    np.testing.assert_array_equal(load("cifar-10").train_x, arrays.train_x)
    np.testing.assert_array_equal(load("cifar-10").train_y, arrays.train_y)
