"""Two tiny made-up data sets, one in each raw layout; a cache folder and a web site for each test."""

import io
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaquantfl.training import datasets
from adaquantfl.training.catalogue import SPECS, Spec
from adaquantfl.training.datasets import Arrays, digest

RawFiles = dict[str, bytes]


def pack(arrays: Arrays) -> RawFiles:
    """The raw files as the authors publish them, unpacked: idx for grey pictures, CIFAR's batches for colour."""
    if arrays.train_x.shape[1] == 1:
        names = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
        return dict(zip(names, map(_pack_idx, arrays), strict=True))
    batches = zip(np.split(arrays.train_x, 5), np.split(arrays.train_y, 5), strict=True)
    packed = {f"data_batch_{number}.bin": _pack_batch(x, y) for number, (x, y) in enumerate(batches, 1)}
    return {**packed, "test_batch.bin": _pack_batch(arrays.test_x, arrays.test_y)}


def _pack_batch(pixels: Any, labels: Any) -> bytes:
    return np.concatenate([labels[:, None], pixels.reshape(len(labels), -1)], axis=1).tobytes()


def _pack_idx(array: Any) -> bytes:
    # Two zero bytes, type 8 (uint8), the number of axes, and each axis big-endian; the grey channel is no axis.
    shape = array.shape if array.ndim == 1 else (array.shape[0], *array.shape[-2:])
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + array.tobytes()


def _tiny(like: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Spec, Arrays, RawFiles]:
    """40 + 20 pictures of noise with a checksum of their own, under the name of a real data set."""
    spec = replace(SPECS[like], train=40, test=20)
    rng = np.random.default_rng(0)
    arrays = Arrays(
        rng.integers(0, 256, (spec.train, *spec.shape), np.uint8),
        rng.integers(0, 10, spec.train, np.uint8),
        rng.integers(0, 256, (spec.test, *spec.shape), np.uint8),
        rng.integers(0, 10, spec.test, np.uint8),
    )
    spec = replace(spec, sha256=digest(arrays))
    monkeypatch.setitem(SPECS, like, spec)
    return spec, arrays, pack(arrays)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    datasets._load.cache_clear()
    monkeypatch.setenv("ADAQUANTFL_DATA", str(folder))
    return folder


@pytest.fixture
def fashion(monkeypatch: pytest.MonkeyPatch) -> tuple[Spec, Arrays, RawFiles]:
    return _tiny("fashion-mnist", monkeypatch)


@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch) -> tuple[Spec, Arrays, RawFiles]:
    return _tiny("cifar-10", monkeypatch)


@pytest.fixture
def packed() -> Callable[[Arrays], RawFiles]:
    """Turns arrays back into the files that the authors publish."""
    return pack


@pytest.fixture
def tar_of() -> Callable[[Path, dict[str, bytes]], Path]:
    """Writes a .tar.gz of the given members, inside a folder as both archives of CIFAR-10 have it."""

    def write(path: Path, members: dict[str, bytes]) -> Path:
        with tarfile.open(path, "w:gz") as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(f"package/{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return path

    return write


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content: bytes | None = self.server.pages.get(self.path)  # type: ignore[attr-defined]  # set by the fixture
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, bytes]]]:
    """A web site on this machine: its address and the pages to fill in."""
    monkeypatch.setenv("no_proxy", "*")
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    pages: dict[str, bytes] = {}
    server.pages = pages  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    thread.join()
    server.server_close()
