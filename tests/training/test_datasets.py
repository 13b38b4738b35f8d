"""Claims about loading: what comes back, how fast, and what is said when it is missing or damaged."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adaquantfl.errors import DataError
from adaquantfl.training import datasets
from adaquantfl.training.catalogue import SPECS, Spec
from adaquantfl.training.datasets import Arrays, Dataset, load

Tiny = tuple[Spec, Arrays, dict[str, bytes]]
MD5 = {  # of the unpacked files, as others publish them too
    "fashion-mnist": {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    "cifar-10": {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
}


def check_moments(data: Dataset) -> None:
    value = np.arange(256) / 255
    for channel, (mean, std) in enumerate(zip(data.mean, data.std, strict=True)):
        share = np.bincount(data.train_x[:, channel].ravel(), minlength=256) / data.train_x[:, channel].size
        assert share @ value == pytest.approx(mean, abs=5e-5)
        assert np.sqrt(share @ (value - share @ value) ** 2) == pytest.approx(std, abs=5e-5)


def test_sample_has_equally_many_of_each_class() -> None:
    data = load("fashion-mnist-sample")
    assert data.train_x.shape == (10_000, 1, 28, 28)
    assert data.test_x.shape == (2_000, 1, 28, 28)
    assert (data.train_x.dtype.name, data.train_y.dtype.name) == ("uint8", "int64")
    assert np.bincount(data.train_y).tolist() == [1000] * 10
    assert np.bincount(data.test_y).tolist() == [200] * 10
    assert len(data.classes) == 10
    check_moments(data)


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar-10"])
def test_full_data_set_is_the_published_one(
    name: str, packed: Callable[[Arrays], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADAQUANTFL_DATA")
    spec = SPECS[name]
    if not datasets.path_of(spec).is_file():
        pytest.skip(f"{name} is not in this machine's cache (adaquantfl data get {name})")
    files = packed(datasets.read(spec))
    assert {file: hashlib.md5(content).hexdigest() for file, content in files.items()} == MD5[name]
    check_moments(load(name))


def test_sample_is_the_one_its_script_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADAQUANTFL_DATA")
    script = Path(__file__).parents[2] / "scripts" / "make_sample.py"
    if not datasets.path_of(SPECS["fashion-mnist"]).is_file() or not script.is_file():
        pytest.skip("fashion-mnist is not in this machine's cache (adaquantfl data get fashion-mnist)")
    names: dict[str, object] = {"__name__": "make_sample"}
    exec(compile(script.read_text(), str(script), "exec"), names)
    made = names["sample"](datasets.read(SPECS["fashion-mnist"]))  # type: ignore[operator]  # read from a script
    for drawn, shipped in zip(made, datasets.read(SPECS["fashion-mnist-sample"]), strict=True):
        np.testing.assert_array_equal(drawn, shipped)


def test_no_flipped_byte_is_ever_loaded_as_data(fashion: Tiny) -> None:
    spec, arrays, _ = fashion
    path = datasets.path_of(spec)
    datasets.write(path, arrays)
    whole = path.read_bytes()
    # Every byte of the structure at both ends, and a spread of those between: some (a date) carry no data.
    places = {*range(0, 220, 2), *range(220, len(whole), 997), *range(len(whole) - 320, len(whole), 2)}
    refused: list[str] = []
    for place in sorted(places):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        path.write_bytes(damaged)
        datasets._load.cache_clear()
        try:
            data = load("fashion-mnist")
        except DataError as error:
            refused.append(str(error))
        else:
            np.testing.assert_array_equal(data.train_x, arrays.train_x)
            np.testing.assert_array_equal(data.test_x, arrays.test_x)
    assert len(refused) > len(places) // 2
    assert all(str(path) in said and "adaquantfl data get fashion-mnist" in said for said in refused)


def test_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert datasets.folder() == tmp_path / "cache"
    monkeypatch.delenv("ADAQUANTFL_DATA")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert datasets.folder() == tmp_path / "xdg" / "adaquantfl"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert datasets.folder() == tmp_path / "home" / ".cache" / "adaquantfl"
