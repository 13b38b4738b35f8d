"""Flower's messages know which task of which run made them; outside of a run a test says so."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0")


@pytest.fixture(autouse=True)
def _task(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.LogCaptureFixture]:
    """What Flower's log, and ours in it, says from WARNING on."""
    logger = logging.getLogger("flwr")
    monkeypatch.setattr(logger, "propagate", False)  # or everything is there twice
    caplog.set_level("WARNING")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)
