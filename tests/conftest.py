"""Shared helpers of the tests."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings

import adaquantfl as aq
from support.run_files import comparison, make_run  # noqa: F401 - fixtures

# The same examples in every run, and no deadline: machines differ.
settings.register_profile("adaquantfl", deadline=None, derandomize=True)
settings.load_profile("adaquantfl")

# Where Ctrl-C is ignored, as in a background job of a shell, the programs that tests start would ignore it too. With a
# handler that does nothing, this process ignores it as before, and they do not.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda number, frame: None)


def pytest_collection_finish() -> None:
    """Hide what was imported from the garbage collector: some of Flower's strategies call it again and again."""
    gc.freeze()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20_211_015)


@pytest.fixture(autouse=True)
def _default_threads() -> Iterator[None]:
    yield
    aq.set_threads(None)


@pytest.fixture
def whole_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies have whole frames, which can be read and spoiled without their orders."""
    from adaquantfl.codecs import coding, frame

    for module in (coding, frame):
        monkeypatch.setattr(module, "left_out", lambda known: None)
