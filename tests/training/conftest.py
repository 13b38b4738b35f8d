"""Two tiny made-up data sets, one in each raw layout; a cache folder and a web site for each test."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from adaquantfl.training.catalogue import SPECS, RawFile, Spec
from adaquantfl.training.layouts import Arrays, RawFiles, pack


def _tiny(like: str, names: list[str]) -> tuple[Spec, Arrays, RawFiles]:
    spec = replace(
        SPECS[like],
        train=40,
        test=20,
        files=tuple(RawFile(name, 0, "") for name in names),
    )
    rng = np.random.default_rng(0)
    arrays = Arrays(
        rng.integers(0, 256, (spec.train, *spec.shape), np.uint8),
        rng.integers(0, 10, spec.train, np.uint8),
        rng.integers(0, 256, (spec.test, *spec.shape), np.uint8),
        rng.integers(0, 10, spec.test, np.uint8),
    )
    raw = pack(spec, arrays)
    files = tuple(RawFile(name, len(raw[name]), hashlib.md5(raw[name]).hexdigest()) for name in names)
    return replace(spec, files=files), arrays, raw


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ADAQUANTFL_DATA", str(folder))
    return folder


@pytest.fixture
def fashion(monkeypatch: pytest.MonkeyPatch) -> tuple[Spec, Arrays, RawFiles]:
    """Under the name fashion-mnist: 40 + 20 pictures of noise with checksums of their own."""
    tiny = _tiny("fashion-mnist", [file.name for file in SPECS["fashion-mnist"].files])
    monkeypatch.setitem(SPECS, "fashion-mnist", tiny[0])
    return tiny


@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch) -> tuple[Spec, Arrays, RawFiles]:
    """Under the name cifar-10: two training batches of 20 pictures and a test batch."""
    tiny = _tiny("cifar-10", ["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"])
    monkeypatch.setitem(SPECS, "cifar-10", tiny[0])
    return tiny


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
        claimed = len(content) + (100 if "short" in self.path else 0)
        self.send_response(200)
        self.send_header("Content-Length", str(claimed))
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
