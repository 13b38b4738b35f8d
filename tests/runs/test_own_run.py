"""Runs of a task of one's own: the same model on every engine, resumable, repeatable from their folder, reported."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import adaquantfl as aq
from adaquantfl.cli import main
from adaquantfl.engines.launch import launch
from adaquantfl.runs import jobs, records
from adaquantfl.runs import loop as runner
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import Request
from adaquantfl.runs.records import load_run
from support.own_tasks import REGRESSION, written
from support.small_runs import interrupt_after, without_times

SMALL: dict[str, Any] = {"clients": 3, "tau": 2, "rounds": 4, "batch_size": 8, "eta": 0.02, "evaluate_every": 2}


def small(path: Path, function: str = "task", **changes: Any) -> Config:
    return load_config(f"{path}:{function}", {**SMALL, "workers": 1, **changes})


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return written(tmp_path, REGRESSION)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["local", "gloo", "flower"])
def test_every_engine_gives_the_same_model_bit_for_bit(mine: Path, tmp_path: Path, engine: str) -> None:
    """With dropout, whose masks must not depend on who draws them."""
    expected = runner.run(small(mine), tmp_path / "one")
    found = launch(engine, Request(tmp_path / engine, small(mine, workers=2)))
    assert found is not None
    for key in ("model_sha256", "final_loss", "final_test_loss"):
        assert found[key] == expected[key]


def test_a_run_repeats_from_its_folder_wherever_that_and_the_task_are_moved(mine: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    mine = mine.rename(here / mine.name)
    first = runner.run(small(mine), here / "runs" / "a")
    assert (here / "runs" / "a" / "task" / "mine.py").read_bytes() == mine.read_bytes()
    assert str(tmp_path) not in (here / "runs" / "a" / "config.toml").read_text()
    assert load_config(here / "runs" / "a" / "config.toml") == small(mine)
    shutil.move(here, there)
    again = runner.run(load_config(there / "runs" / "a" / "config.toml"), there / "runs" / "b")
    assert again["model_sha256"] == first["model_sha256"]
    assert without_times(there / "runs" / "a") == without_times(there / "runs" / "b")


def test_an_interrupted_run_goes_on_to_the_same_model_but_not_with_another_file(mine: Path, tmp_path: Path) -> None:
    whole = runner.run(small(mine), tmp_path / "whole")

    with pytest.raises(KeyboardInterrupt):
        runner.run(small(mine), tmp_path / "run", interrupt_after(3))
    mine.write_text(REGRESSION.replace("* 3", "* 4"))
    with pytest.raises(aq.TaskError, match=r"not the file that this run began with.*copy in task/"):
        runner.resume(tmp_path / "run")
    shutil.copy(tmp_path / "run" / "task" / "mine.py", mine)
    assert runner.resume(tmp_path / "run")["model_sha256"] == whole["model_sha256"]
    mine.unlink()
    assert runner.resume(tmp_path / "run")["model_sha256"] == whole["model_sha256"]  # finished: there is nothing to do
    with pytest.raises(aq.TaskError, match="There is no file"):
        runner.resume(tmp_path / "run", {"rounds": 6})
    assert (tmp_path / "run" / "summary.json").is_file()  # a refusal takes nothing away


def test_a_regression_is_reported_without_accuracy_and_classes(mine: Path, tmp_path: Path) -> None:
    assert main(["run", f"{mine}:task", "--out", str(tmp_path / "run"), *arguments()]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    record = load_run(tmp_path / "run")
    assert records.measure_of_test([record]) == "test_loss"
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    shown = re.sub(r"(?s)<script.*?</script>|<style.*?</style>", "", text)
    assert "AdaQuantFL report: mine.py:task" in shown
    assert "test loss" in shown
    assert "accuracy" not in shown
    assert "None" not in shown
    assert str(tmp_path) not in text  # a page is passed on
    assert (tmp_path / "run" / "test_loss.png").stat().st_size > 1000
    assert not (tmp_path / "run" / "accuracy.png").exists()


def test_a_task_without_a_test_set_is_reported_too(tmp_path: Path) -> None:
    path = written(tmp_path, re.sub(r"        test=.*\n", "", REGRESSION))
    summary = runner.run(small(path), tmp_path / "run")
    assert summary["final_accuracy"] is None
    assert "final_test_loss" not in summary
    assert main(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "loss.png").stat().st_size > 1000


def test_another_task_is_told_apart(mine: Path, tmp_path: Path) -> None:
    runner.run(small(mine, rounds=1), tmp_path / "run")
    mine.write_text(REGRESSION.replace("* 3", "* 4"))
    with pytest.raises(aq.CheckpointError, match="holds a run with task_sha256"):
        jobs.check([jobs.Job(small(mine, rounds=1), tmp_path / "run")])


def test_a_loss_that_cannot_be_computed_on_one_client_names_it(tmp_path: Path) -> None:
    """The first batch is checked before the run; the rest is found where it is met."""
    ragged = REGRESSION.replace(
        "train=parts", "train=[*parts[:2], [(torch.ones(6 + (i == 70)), torch.ones(1)) for i in range(80)]]"
    )
    with pytest.raises(aq.AdaQuantError, match=r"client 2: it raised RuntimeError: stack expects"):
        runner.run(small(written(tmp_path, ragged)), tmp_path / "run")


def arguments() -> list[str]:
    return [f"--set={key}={value}" for key, value in {**SMALL, "workers": 1}.items()]
