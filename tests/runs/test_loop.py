"""A run survives whatever happens to it, and its record says what it did."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.engines.calls import CallEngine
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol.messages import Model, Plan, Reply
from adaquantfl.quantizers.levels import Levels
from adaquantfl.runs import checkpoint
from adaquantfl.runs import loop as runner
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.directory import RunDirectory
from adaquantfl.training.trainer import Trainer
from support.processes import HANG_SECONDS, alive, children, wait_until
from support.small_runs import history, options, without_times

SMALL = {
    "model": "mlp",
    "clients": 3,
    "tau": 3,
    "rounds": 12,
    "loss_samples": 32,
    "workers": 1,
    "checkpoint_every": 4,
    "evaluate_every": 5,
    "interval": 4.0,
}


@pytest.fixture
def small() -> Config:
    return load_config("demo", SMALL)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of these settings; tests read it, or copy it to write."""
    folder = tmp_path_factory.mktemp("played") / "run"
    runner.run(load_config("demo", SMALL), folder)
    return folder


@pytest.fixture
def finished(played: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return shutil.copytree(played, tmp_path / "run")


def summary_of(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return content


def test_a_run_leaves_a_complete_record(small: Config, tmp_path: Path) -> None:
    summary = runner.run(small, tmp_path / "run")
    assert summary_of(tmp_path / "run") == summary
    assert load_config(tmp_path / "run" / "config.toml") == small
    assert (tmp_path / "run" / "partition.png").stat().st_size > 1000
    rounds = history(tmp_path / "run")
    assert [line["round"] for line in rounds] == list(range(1, 13))
    assert set(rounds[4]) == {
        "round", "s", "bits_per_element", "lr", "loss", "round_loss", "test_accuracy", "paper_bits",
        "wire_bytes_up", "wire_bytes_down", "payload_bytes_up", "payload_bytes_down", "clients", "seconds",
        "paper_bits_down",
    }  # fmt: skip
    assert set(summary) >= {
        "rounds", "paper_bits", "wire_bytes_up", "wire_bytes_down", "final_loss", "final_accuracy", "targets",
        "model_sha256", "seconds", "versions",
    }  # fmt: skip
    assert summary["rounds"] == 12
    assert summary["paper_bits"] == rounds[-1]["paper_bits"]
    assert summary["final_loss"] == rounds[-1]["loss"]
    first = next(line for line in rounds if line.get("loss", 9) <= 2.0)
    assert summary["targets"]["2"]["round"] == first["round"]
    assert summary["targets"]["2"]["paper_bits"] == first["paper_bits"]


def test_a_run_repeats_from_its_own_configuration_file(played: Path, tmp_path: Path) -> None:
    again = runner.run(load_config(played / "config.toml"), tmp_path / "again")
    assert again["model_sha256"] == summary_of(played)["model_sha256"]
    assert without_times(tmp_path / "again") == without_times(played)
    other = runner.run(load_config("demo", {**SMALL, "seed": 1}), tmp_path / "other")
    assert other["model_sha256"] != again["model_sha256"]


def test_a_run_interrupted_in_any_round_goes_on_to_the_same_model(small: Config, played: Path, tmp_path: Path) -> None:
    for stop in (1, 4, 6, 11):

        def interrupt(config: Config, state: object, line: dict | None, stop: int = stop) -> None:
            if line and line["round"] == stop:
                raise KeyboardInterrupt

        folder = tmp_path / f"stopped-{stop}"
        with pytest.raises(KeyboardInterrupt):
            runner.run(small, folder, interrupt)
        state = checkpoint.load(folder / "checkpoint")
        assert state is not None
        assert state.round == stop  # nothing that was finished is lost
        assert runner.resume(folder)["model_sha256"] == summary_of(played)["model_sha256"]
        assert without_times(folder) == without_times(played)


@pytest.fixture
def stc(small: Config) -> Config:
    return replace(small, quantizer="stc", method="1bit", sparsity=50, rounds=6)


def test_an_adaptive_rule_drives_plain_rounding_and_feedback_does_what_it_alone_does_not(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coarse = replace(small, quantizer="nearest", rounds=40)
    kept = runner.run(coarse, tmp_path / "kept")
    monkeypatch.setattr(Levels, "remainder", lambda levels, x: np.zeros_like(x))
    lost = runner.run(coarse, tmp_path / "lost")
    assert kept["final_loss"] < 0.9 * lost["final_loss"]


def test_what_error_feedback_left_over_survives_an_interruption_in_the_middle_of_a_round(
    stc: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runner.run(stc, tmp_path / "whole")
    train = Trainer.train

    def cut(self: Trainer, client: int, model: Model, plan: Plan) -> Reply:
        if (plan.round, client) == (3, 2):  # two clients have played this round, and have new remainders
            raise KeyboardInterrupt
        return train(self, client, model, plan)

    monkeypatch.setattr(Trainer, "train", cut)
    with pytest.raises(KeyboardInterrupt):
        runner.run(stc, tmp_path / "cut")
    monkeypatch.undo()
    assert runner.resume(tmp_path / "cut")["model_sha256"] == whole["model_sha256"]


def test_a_run_whose_remainders_are_gone_is_not_resumed_to_another_model(stc: Config, tmp_path: Path) -> None:
    runner.run(replace(stc, rounds=3), tmp_path / "run")
    folder = tmp_path / "run" / "checkpoint"
    state = checkpoint.load(folder)
    assert state is not None
    checkpoint.save(replace(state, kept={}), folder)
    with pytest.raises(aq.CheckpointError, match="error feedback"):
        runner.resume(tmp_path / "run", {"rounds": 6})
    assert (tmp_path / "run" / "summary.json").is_file()  # nothing is lost


def test_float32_leaves_nothing_out_and_is_resumed_with_any_quantizer(stc: Config, tmp_path: Path) -> None:
    runner.run(replace(stc, method="fp32", rounds=2), tmp_path / "run")
    assert runner.resume(tmp_path / "run", {"rounds": 3})["rounds"] == 3


def test_an_engine_without_its_clients_state_does_not_go_on_with_such_a_run(stc: Config, tmp_path: Path) -> None:
    class Elsewhere(LocalEngine):
        kept, restore = CallEngine.kept, CallEngine.restore

    runner.run(replace(stc, rounds=3), tmp_path / "run")
    with pytest.raises(aq.EngineError, match=r"3 clients .* --engine local"):
        runner.resume(tmp_path / "run", {"rounds": 6}, connect=Elsewhere)


def test_the_codec_changes_the_bytes_and_nothing_else(small: Config, played: Path, tmp_path: Path) -> None:
    summaries = {
        codec: runner.run(load_config("demo", {**SMALL, "codec": codec}), tmp_path / codec)
        for codec in ("fixed", "sparse", "dense")
    }
    assert small.codec == "auto"
    summaries["auto"] = summary_of(played)
    for key in ("model_sha256", "paper_bits", "final_loss"):
        assert len({summary[key] for summary in summaries.values()}) == 1
    up = {codec: summary["wire_bytes_up"] for codec, summary in summaries.items()}
    assert up["auto"] <= min(up.values())
    assert up["fixed"] > 5 * up["auto"]


def test_a_finished_run_is_not_played_again_and_its_files_are_not_written(finished: Path) -> None:
    names = ("config.toml", "history.jsonl", "summary.json", "checkpoint/state.npz")
    before = {name: (finished / name).stat() for name in names}
    assert runner.resume(finished) == summary_of(finished)
    for name, then in before.items():
        now = (finished / name).stat()
        assert (now.st_ino, now.st_mtime_ns, now.st_size) == (then.st_ino, then.st_mtime_ns, then.st_size), name


def test_rounds_behind_the_checkpoint_and_a_torn_line_are_cut_from_the_history(finished: Path) -> None:
    before = (finished / "history.jsonl").read_bytes()
    (finished / "history.jsonl").write_bytes(before + b'{"round": 13}\n{"rou')
    runner.resume(finished)
    assert (finished / "history.jsonl").read_bytes() == before


def test_a_finished_run_can_be_made_longer(finished: Path, tmp_path: Path) -> None:
    long = runner.run(load_config("demo", {**SMALL, "rounds": 15}), tmp_path / "long")
    summary = runner.resume(finished, {"rounds": 15})
    assert summary["model_sha256"] == long["model_sha256"]
    assert load_config(finished / "config.toml").rounds == 15


def test_a_run_cannot_be_made_shorter(finished: Path) -> None:
    with pytest.raises(aq.CheckpointError, match="longer, not shorter"):
        runner.resume(finished, {"rounds": 5})
    assert load_config(finished / "config.toml").rounds == 12


def test_a_run_that_goes_on_has_no_summary_until_its_end(finished: Path, tmp_path: Path) -> None:
    def interrupt(config: Config, state: object, line: dict | None) -> None:
        if line and line["round"] == 14:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.resume(finished, {"rounds": 30}, interrupt)
    assert not (finished / "summary.json").exists()
    # The budget may end on a round that was not evaluated: the summary is of that round all the same.
    shorter = runner.resume(finished, {"rounds": 14})
    clean = runner.run(load_config("demo", {**SMALL, "rounds": 14}), tmp_path / "clean")
    for key in ("model_sha256", "final_loss", "final_accuracy", "rounds"):
        assert shorter[key] == clean[key]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("summary.json", b"{", "damaged"),
        ("summary.json", b"[]", "not the summary"),
        ("history.jsonl", b"\xff\xfe", "not text"),
        ("history.jsonl", b"", "lines were removed"),
        ("config.toml", b"\xff\xfe", "UTF-8"),
        ("config.toml", b"tau = ", "not valid TOML"),
    ],
)
def test_a_damaged_file_is_named(finished: Path, name: str, content: bytes, words: str) -> None:
    (finished / name).write_bytes(content)
    with pytest.raises(aq.AdaQuantError, match=words):
        runner.resume(finished)


def test_resuming_with_another_learning_rate_is_refused(finished: Path) -> None:
    with pytest.raises(aq.ConfigError, match="eta would change rounds that are done"):
        runner.resume(finished, {"eta": 0.2})


def test_a_folder_with_a_run_is_not_written_over(small: Config, finished: Path) -> None:
    with pytest.raises(aq.CheckpointError, match="--resume"):
        runner.run(small, finished)


def test_a_cosine_cannot_be_made_longer(small: Config, tmp_path: Path) -> None:
    runner.run(replace(small, method="cosine", rounds=2), tmp_path / "run")
    with pytest.raises(aq.CheckpointError, match="all rounds"):
        runner.resume(tmp_path / "run", {"rounds": 4})
    assert runner.resume(tmp_path / "run")["rounds"] == 2


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(aq.CheckpointError, match="no run"):
        runner.resume(tmp_path)


def test_two_processes_cannot_work_on_one_run(finished: Path) -> None:
    held = RunDirectory(finished)
    held.resume({})
    try:
        with pytest.raises(aq.CheckpointError, match="Another process"):
            runner.resume(finished)
    finally:
        held.close()


def test_a_damaged_checkpoint_is_named(finished: Path) -> None:
    path = finished / "checkpoint" / "state.npz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(aq.CheckpointError, match="damaged"):
        runner.resume(finished)


def test_missing_data_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAQUANTFL_DATA", str(tmp_path / "nothing"))
    with pytest.raises(aq.DataError, match="adaquantfl data get fashion-mnist"):
        runner.run(load_config("fmnist-cnn-iid"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def start(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "adaquantfl", "run", *more],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def wait_for_rounds(run: Path, rounds: int, process: subprocess.Popen[bytes]) -> None:
    def there() -> bool:
        ended = process.poll() is not None  # before looking at the history: it may play the last rounds meanwhile
        file = run / "history.jsonl"
        enough = file.exists() and file.read_bytes().count(b"\n") >= rounds
        assert enough or not ended, process.communicate()
        return enough

    wait_until(there, HANG_SECONDS, f"{rounds} rounds in {run}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a run at once, and wait until its workers have noticed that nobody is there any more."""
    workers = children(process.pid)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(alive, workers)), HANG_SECONDS, "the workers end")


def test_a_killed_run_ends_in_the_same_model(played: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(tmp_path, "demo", *options({**SMALL, "workers": 2}), "--out", str(run))
    wait_for_rounds(run, 2, process)
    kill(process)
    assert runner.resume(run, {"workers": 1})["model_sha256"] == summary_of(played)["model_sha256"]
    assert without_times(run) == without_times(played)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_killed_again_and_again_ends_in_the_same_model(tmp_path: Path, workers: int) -> None:
    settings = {**SMALL, "rounds": 120, "tau": 10, "checkpoint_every": 7}
    whole = runner.run(load_config("demo", settings), tmp_path / "whole")
    run = tmp_path / "run"
    process = start(tmp_path, "demo", *options({**settings, "workers": workers}), "--out", str(run))
    for rounds in (2, 30, 66):
        wait_for_rounds(run, rounds, process)
        kill(process)
        process = start(tmp_path, "--resume", str(run))
    _, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, errors
    assert summary_of(run)["model_sha256"] == whole["model_sha256"]
    assert without_times(run) == without_times(tmp_path / "whole")


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path: Path, workers: int) -> None:
    run = tmp_path / "run"
    overrides = options({**SMALL, "rounds": 100_000, "workers": workers})
    process = start(tmp_path, "demo", *overrides, "--out", str(run))
    wait_for_rounds(run, 5, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    assert f"adaquantfl run --resume {run}" in errors.decode()
    assert b"Traceback" not in errors
    done = len(history(run))
    summary = runner.resume(run, {"rounds": done + 2, "workers": 1})
    assert summary["rounds"] == done + 2
