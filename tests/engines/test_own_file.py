"""A client runs the files that it was started with, and no other that a server names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import adaquantfl as aq
from adaquantfl.engines.own_file import VARIABLES, allow, settings_here
from adaquantfl.runs.config import Config, load_config
from adaquantfl.training.task import Task
from support.own_tasks import REGRESSION, written


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a server sends: the path is the one on its own host."""
    monkeypatch.setenv(VARIABLES["task"], "")
    path = written(tmp_path, REGRESSION)
    config = load_config(f"{path}:task", {"clients": 2})
    path.rename(tmp_path / "here.py")
    return config.for_clients()


def test_a_server_cannot_name_the_file(sent: dict[str, Any]) -> None:
    with pytest.raises(aq.TaskError, match=r"uses the task mine.py:task, but this client was started without it"):
        settings_here(sent)


def test_the_client_runs_its_own_copy_wherever_it_is(sent: dict[str, Any], tmp_path: Path) -> None:
    allow({"task": f"{tmp_path}/here.py:task"})
    config = settings_here(sent)
    assert config.task == f"{tmp_path}/here.py:task"
    assert len(Task.of(config).parts) == 2


def test_another_version_of_the_file_is_refused(sent: dict[str, Any], tmp_path: Path) -> None:
    written(tmp_path, REGRESSION + "# mine", "here.py")
    allow({"task": f"{tmp_path}/here.py:task"})
    with pytest.raises(aq.TaskError, match="another host has another version"):
        Task.of(settings_here(sent))


def test_presets_need_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES["task"], "")
    assert settings_here(Config().for_clients()).for_clients() == Config().for_clients()
