"""The paper's panels: what is run, what it takes, and that it resumes; a mistyped panel is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import adaquantfl as aq
from adaquantfl.cli import main
from adaquantfl.report import figures
from adaquantfl.runs import reproduce
from support import small_runs

TINY = {**small_runs.TINY, "dataset": "fashion-mnist-sample", "rounds": 2, "workers": 1}
OPTIONS = [f"--set={key}={value}" for key, value in TINY.items()]


def test_a_panel_is_a_preset_with_the_papers_methods() -> None:
    jobs = reproduce.plan("cifar-resnet18-decay", reproduce.METHODS, 1, {}, Path("out"))
    assert [job.config.method for job in jobs] == reproduce.METHODS.split(",")
    assert {(job.config.model, job.config.target_loss, job.config.eta_decay) for job in jobs} == {
        ("resnet18", 0.02, 0.9)
    }
    words = reproduce.effort(jobs)
    assert words.startswith("6 runs with 900 rounds in all")
    assert "The data set cifar-10, 184 MB, is " in words
    with pytest.raises(aq.ConfigError, match="Did you mean 'fmnist-cnn-iid'"):
        reproduce.plan("fmnist-cnn-idd", "adaquant", 1, {}, Path("out"))


def test_the_command_says_what_it_takes_runs_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "draw", lambda *_: [])  # it takes longer than the runs
    command = ["reproduce", "fmnist-cnn-iid", "--methods=adaquant,2bit", f"--out={tmp_path}", *OPTIONS]
    for _ in range(2):
        assert main(command) == 0
    said = capsys.readouterr().err
    assert "2 runs with 4 rounds in all" in said
    assert re.search(r"The data set fashion-mnist-sample, \d+ MB, is here\.", said)
    for method in ("adaquant", "2bit"):
        assert json.loads((tmp_path / method / "seed-0" / "summary.json").read_text())["rounds"] == 2
    assert (tmp_path / "report.html").exists()


def test_all_of_the_papers_presets_are_one_setting() -> None:
    for panel in reproduce.PRESETS:
        (job,) = reproduce.plan(panel, "adaquant", 1, {}, Path("out"))
        config = job.config
        assert (config.scope, config.tau, config.eta) == ("whole", 10, 0.1)
        assert {"s0": 2, "rounding": "power"}.items() <= config.rule.items()
        assert config.dataset in ("fashion-mnist", "cifar-10")
