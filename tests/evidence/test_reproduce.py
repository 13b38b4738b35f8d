"""The paper's experiments are recorded once each, with the commit of the code that made them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import adaquantfl as aq
from adaquantfl.cli import main
from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from evidence.studies import reproduce
from support import small_runs

TINY = {**small_runs.TINY, "dataset": "fashion-mnist-sample", "rounds": 3}


def test_a_run_is_recorded_with_its_commit_and_not_played_twice(tmp_path: Path) -> None:
    work, records = tmp_path / "work", tmp_path / "records"
    jobs = reproduce.panel_jobs("fmnist-cnn-iid", ["adaquant", "2bit"], TINY, work)
    assert [job.out for job in jobs] == [work / "fmnist-cnn-iid" / m for m in ("adaquant", "2bit")]
    record = reproduce.carry_out(jobs[0], records, work, None)
    assert record == records / "fmnist-cnn-iid" / "adaquant"
    assert sorted(path.name for path in record.iterdir()) == [
        "config.toml", "history.jsonl", "partition.json", "summary.json",
    ]  # fmt: skip
    summary = json.loads((record / "summary.json").read_text())
    assert summary["rounds"] == 3
    assert summary["commits"] == [reproduce.current_commit()]
    assert load_config(record / "config.toml") == jobs[0].config
    assert reproduce.carry_out(jobs[0], records, work, None) is None


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    job = reproduce.panel_jobs("fmnist-cnn-iid", ["adaquant"], TINY, tmp_path / "work")[0]

    def interrupt(config: object, state: object, line: dict | None) -> None:
        if line and line["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce.carry_out(job, tmp_path / "records", tmp_path / "work", interrupt)
    assert not (tmp_path / "records").exists()
    assert reproduce.carry_out(job, tmp_path / "records", tmp_path / "work", None) is not None


def test_a_record_of_fewer_rounds_is_made_longer(tmp_path: Path) -> None:
    folders = tmp_path / "records", tmp_path / "work"
    short, long = (
        reproduce.panel_jobs("fmnist-cnn-noniid", ["2bit"], {**TINY, "rounds": rounds}, folders[1])[0]
        for rounds in (2, 4)
    )
    record = reproduce.carry_out(short, *folders, None)
    assert record is not None
    assert reproduce.carry_out(long, *folders, None) == record
    assert json.loads((record / "summary.json").read_text())["rounds"] == 4
    assert reproduce.carry_out(short, *folders, None) is None


def test_rounds_before_the_learning_rate_falls_are_played_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, work = tmp_path / "records", tmp_path / "work"
    fast = {"eta_decay": 0.5, "eta_decay_every": 2, "rounds": 5}
    monkeypatch.setattr(reproduce, "read_toml", lambda name: fast)
    fixed = reproduce.panel_jobs("fmnist-cnn-iid", ["adaquant"], TINY, work)[0]
    reproduce.carry_out(fixed, records, work, None)
    played = []
    decaying = Job(load_config("fmnist-cnn-iid", {**TINY, **fast}), work / "fmnist-cnn-iid-decay" / "adaquant")
    reproduce.carry_out(decaying, records, work, lambda config, state, line: played.append(line))
    assert [line["round"] for line in played if line] == [3, 4, 5]
    alone = Job(decaying.config, tmp_path / "alone" / "other" / "adaquant")
    reproduce.carry_out(alone, records, tmp_path / "alone", None)
    hashes = {
        json.loads((records / panel / "adaquant" / "summary.json").read_text())["model_sha256"]
        for panel in ("fmnist-cnn-iid-decay", "other")
    }
    assert len(hashes) == 1


def test_other_settings_than_the_work_in_progress_are_refused(tmp_path: Path) -> None:
    job = reproduce.panel_jobs("fmnist-cnn-iid", ["adaquant"], TINY, tmp_path / "work")[0]
    reproduce.carry_out(job, tmp_path / "records", tmp_path / "work", None)
    other = Job(load_config("fmnist-cnn-iid", {**TINY, "eta": 0.2}), job.out)
    with pytest.raises(aq.CheckpointError, match=r"eta = 0\.1"):
        reproduce.carry_out(other, tmp_path / "elsewhere", tmp_path / "work", None)


def test_all_panels_and_methods_are_the_papers() -> None:
    jobs = reproduce.panel_jobs("all", [], {}, Path("w"))
    assert len(jobs) == 36
    assert {job.config.target_loss for job in jobs} == {0.02}


def test_a_mistyped_panel_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "fmnist-cnn-idd"]) == 1
    assert "Did you mean 'fmnist-cnn-iid'" in capsys.readouterr().err
