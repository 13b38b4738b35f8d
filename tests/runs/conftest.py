"""A small run for the tests: the MLP on the bundled sample. Some tests only need a finished one, played once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from adaquantfl.runs import loop
from adaquantfl.runs.config import Config, load_config

SMALL: dict[str, Any] = {
    "model": "mlp",
    "clients": 3,
    "tau": 3,
    "rounds": 6,
    "batch_size": 16,
    "loss_samples": 32,
    "workers": 1,
    "checkpoint_every": 4,
    "evaluate_every": 5,
    "rule.interval": 4.0,
}


@pytest.fixture
def small() -> Config:
    return load_config("demo", SMALL)


@pytest.fixture(scope="session")
def played_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    loop.run(load_config("demo", SMALL), folder)
    return folder


@pytest.fixture
def finished(played_once: Path, tmp_path: Path) -> Path:
    """The folder of a finished run of `small`, of the test's own."""
    return Path(shutil.copytree(played_once, tmp_path / "finished"))
