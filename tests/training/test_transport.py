"""Claims about bringing bytes here: what is cut short, too large or not there is refused."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adaquantfl.training import transport
from adaquantfl.training.transport import SourceError, download, gunzip, run, untar

TarOf = Callable[[Path, dict[str, bytes]], Path]


def test_short_and_oversized_downloads_are_refused(site: tuple[str, dict[str, bytes]], tmp_path: Path) -> None:
    address, pages = site
    pages["/short"] = pages["/long"] = b"x" * 1000
    with pytest.raises(SourceError, match="ended after 1,000 of 1,100 bytes"):
        download(f"{address}/short", tmp_path / "file", 5000, lambda *_: None)
    with pytest.raises(SourceError, match="more than 999 bytes"):
        download(f"{address}/long", tmp_path / "file", 999, lambda *_: None)


def test_unreachable_site_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(SourceError, match=r"^data: .*refused"):
        download("http://127.0.0.1:1/data", tmp_path / "file", 10, lambda *_: None)


def test_gzip_bomb_truncation_and_garbage_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(bytes(10_000_000)))
    with pytest.raises(SourceError, match="unpacks to more than 1,000 bytes"):
        gunzip(path, 1000)
    path.write_bytes(gzip.compress(bytes(1000))[:-3])
    with pytest.raises(SourceError, match="is cut short"):
        gunzip(path, 1000)
    path.write_bytes(b"<html>")
    with pytest.raises(SourceError, match=r"not a whole \.gz file"):
        gunzip(path, 1000)
    with pytest.raises(SourceError, match="is not there"):
        gunzip(tmp_path / "other", 1000)


def test_tar_bomb_truncation_and_garbage_are_refused(tmp_path: Path, tar_of: TarOf) -> None:
    path = tar_of(tmp_path / "f.tgz", {"bomb": bytes(10_000_000), "data": b"1"})
    with pytest.raises(SourceError, match="unpacks to more than 1,000 bytes"):
        untar(path, ["data"], 1000)
    tar_of(path, {"data": np.random.default_rng(0).bytes(100_000)})
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(SourceError, match=r"not a whole \.tar\.gz file"):
        untar(path, ["data"], 1_000_000)
    path.write_bytes(b"<html>")
    with pytest.raises(SourceError, match=r"not a whole \.tar\.gz file"):
        untar(path, ["data"], 1000)
    with pytest.raises(SourceError, match=r"f\.tgz has no data"):
        untar(tar_of(path, {"other": b"1"}), ["data"], 1000)


def test_missing_and_failing_programs_are_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="no-such-program is not installed"):
        run(["no-such-program"], tmp_path)
    with pytest.raises(SourceError, match="ended with code 3: last words"):
        run(["sh", "-c", "echo first >&2; echo last words >&2; exit 3"], tmp_path)
    monkeypatch.setattr(transport, "PROGRAM_SECONDS", 0.05)
    with pytest.raises(SourceError, match=r"could not be run.*timed out"):
        run(["sleep", "3600"], tmp_path)
