"""A comparison: its runs share their workers, end as they would alone, and say how far they are."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adaquantfl.engines.local import LocalEngine
from adaquantfl.engines.pool import Crew
from adaquantfl.errors import EngineError
from adaquantfl.report import progress
from adaquantfl.runs import comparison, loop
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.jobs import Job
from support import small_runs
from support.processes import children


def job(folder: Path, **changes: Any) -> Job:
    config = load_config("demo", {**small_runs.TINY, "rounds": 2, **changes})
    return Job(config, folder / config.method / f"seed-{config.seed}")


def test_progress_counts_runs_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [job(tmp_path, rule=method) for method in ("1bit", "2bit", "4bit")]
    with progress.shown(False, jobs) as spectator:
        assert comparison.carry_out(jobs, spectator) == []
    lines = capsys.readouterr().err.splitlines()
    names = [one.name for one in jobs]
    assert [line.partition(":")[0] for line in lines] == [name for name in names for _ in range(2)]
    assert lines[0] == "1bit seed 0: mlp on fashion-mnist-sample, 2 clients, 2 rounds"
    assert re.fullmatch(r"1bit seed 0: finished, 1 of 3 runs done, at most \d+ s left", lines[1])
    assert lines[-1] == "4bit seed 0: finished, 3 of 3 runs done"


@pytest.mark.slow  # a process that loads PyTorch
def test_runs_in_processes_of_their_own_are_heard_of_round_by_round(tmp_path: Path) -> None:
    jobs, heard = [job(tmp_path, rule=method) for method in ("2bit", "4bit")], []

    class Spectator:
        def of(self, name: str) -> loop.Observer:
            return lambda config, state, line: heard.append((name, state.round))

        def ended(self, job: Job, failure: str) -> None:
            heard.append((job.name, failure or "ended"))

    assert comparison.carry_out(jobs, Spectator(), at_once=2) == []
    for one in jobs:
        assert [what for name, what in heard if name == one.name] == [0, 1, 2, "ended"]


@pytest.mark.slow  # two workers, which load PyTorch
def test_runs_share_their_workers_and_end_as_they_would_alone(tmp_path: Path) -> None:
    jobs = [
        job(tmp_path, clients=3, workers=2, rule="2bit"),
        job(tmp_path, clients=3, workers=2, rule="4bit", seed=1),
        job(tmp_path, clients=3, workers=2, rule="1bit", model="cnn"),  # shared memory of another size
    ]
    workers = []

    def connect(config: Config) -> LocalEngine:
        engine = LocalEngine(config, crew)
        workers.append(set(children(os.getpid())))
        return engine

    crew = Crew()
    try:
        for one in jobs:
            comparison.play(one, connect=connect)
    finally:
        crew.close()
    assert workers[0] == workers[1] == workers[2]
    assert not workers[0] & set(children(os.getpid()))
    for one in jobs:
        alone = loop.run(replace(one.config, workers=1), tmp_path / "alone" / one.config.method)
        assert small_runs.summary(one.out)["model_sha256"] == alone["model_sha256"]


@pytest.mark.slow  # two workers, which load PyTorch
def test_a_run_that_fails_in_mid_round_leaves_the_workers_to_the_next(tmp_path: Path) -> None:
    crew, config = Crew(), job(tmp_path, clients=4, workers=2, rule="2bit").config

    def stop(config: Config, state: object, line: dict[str, Any] | None) -> None:
        if line is not None:
            raise EngineError("stopped")

    try:
        for name in ("one", "two"):
            engine = LocalEngine(config, crew)
            calls = engine.carry(*_calls(engine))
            next(calls)  # the others are still under way
            del engine
            with pytest.raises(EngineError):
                loop.run(config, tmp_path / name, stop, lambda config: LocalEngine(config, crew))
        summary = loop.run(config, tmp_path / "last", connect=lambda config: LocalEngine(config, crew))
    finally:
        crew.close()
    assert summary["model_sha256"] == loop.run(replace(config, workers=1), tmp_path / "alone")["model_sha256"]


def _calls(engine: LocalEngine) -> tuple[Any, list[Any]]:
    server = loop.Run(engine.config, LocalEngine(replace(engine.config, workers=1))).server
    from adaquantfl.engines.calls import Call

    return server, [Call("train", client, order) for client, order in server.open(eta=0.1, loss=2.3).items()]
