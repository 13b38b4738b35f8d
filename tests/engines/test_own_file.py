"""A client runs the file that it was started with, and no other that a server names."""

from __future__ import annotations

from pathlib import Path

import pytest

import adaquantfl as aq
from adaquantfl.engines.own_file import VARIABLE, allow, as_here
from adaquantfl.runs.config import Config, load_config
from adaquantfl.training.task import Task
from support.own_tasks import REGRESSION, written


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """What a server sends: the path is the one on its own host."""
    monkeypatch.setenv(VARIABLE, "")
    path = written(tmp_path, REGRESSION)
    config = load_config(f"{path}:task", {"clients": 2})
    path.rename(tmp_path / "here.py")
    return config


def test_a_server_cannot_name_the_file(sent: Config) -> None:
    with pytest.raises(aq.TaskError, match=r"runs the task mine.py:task, but this client was started without one"):
        as_here(sent)


def test_the_client_runs_its_own_copy_wherever_it_is(sent: Config, tmp_path: Path) -> None:
    allow(f"{tmp_path}/here.py:task")
    assert as_here(sent).task == f"{tmp_path}/here.py:task"
    assert len(Task.of(as_here(sent)).parts) == 2


def test_another_version_of_the_file_is_refused(sent: Config, tmp_path: Path) -> None:
    written(tmp_path, REGRESSION + "# mine", "here.py")
    allow(f"{tmp_path}/here.py:task")
    with pytest.raises(aq.TaskError, match="another host has another version"):
        Task.of(as_here(sent))


def test_presets_need_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert as_here(Config()) == Config()
