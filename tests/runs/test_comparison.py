"""A comparison says how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adaquantfl.report import progress
from adaquantfl.runs import jobs
from adaquantfl.runs.config import load_config
from support import small_runs


def job(folder: Path, **changes: Any) -> jobs.Job:
    config = load_config("demo", {**small_runs.TINY, "rounds": 2, **changes})
    return jobs.Job(config, folder / config.method / f"seed-{config.seed}")


def test_progress_counts_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = [job(tmp_path, rule=method) for method in ("1bit", "2bit", "4bit")]
    with progress.shown(False, plan) as display:
        assert jobs.carry_out(plan, display) == []
    lines = capsys.readouterr().err.splitlines()
    names = [one.name for one in plan]
    assert [line.partition(":")[0] for line in lines] == [name for name in names for _ in range(2)]
    assert lines[0] == "1bit seed 0: mlp on fashion-mnist-sample, 2 clients, 2 rounds"
    assert lines[1] == "1bit seed 0: finished, 1 of 3 runs done"
    assert lines[-1] == "4bit seed 0: finished, 3 of 3 runs done"
