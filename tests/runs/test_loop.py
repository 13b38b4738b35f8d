"""A run leaves a complete record, repeats, and goes on after an interruption to the same model."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl import checkpoint
from adaquantfl.engines import kept
from adaquantfl.engines.base import Engine
from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs import loop as runner
from adaquantfl.runs.config import Config, load_config
from adaquantfl.training.trainer import Trainer
from support.small_runs import history, interrupt_after, without_times


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_a_run_leaves_a_complete_record(small: Config, finished: Path) -> None:
    summary, rounds = summary_of(finished), history(finished)
    assert load_config(finished / "config.toml") == small
    assert [line["round"] for line in rounds] == list(range(1, 7))
    assert set(rounds[4]) == {
        "round", "s", "bits_per_element", "lr", "loss", "round_loss", "test_accuracy", "paper_bits",
        "wire_bytes_up", "wire_bytes_down", "payload_bytes_up", "payload_bytes_down", "clients", "seconds",
    }  # fmt: skip
    assert set(summary) >= {
        "rounds", "paper_bits", "wire_bytes_up", "wire_bytes_down", "final_loss", "final_accuracy", "targets",
        "model_sha256", "seconds", "versions", "commit", "processor",
    }  # fmt: skip
    assert summary["processor"]
    assert summary["rounds"] == 6
    assert summary["paper_bits"] == rounds[-1]["paper_bits"]
    assert summary["final_loss"] == rounds[-1]["loss"]


def test_a_run_ends_at_its_target_and_its_summary_says_what_that_took(small: Config, tmp_path: Path) -> None:
    summary = runner.run(replace(small, rounds=50, evaluate_every=1, target_loss=1.5), tmp_path / "run")
    assert summary == summary_of(tmp_path / "run")
    *before, last = history(tmp_path / "run")
    assert last["loss"] <= 1.5 < min(line["loss"] for line in before if "loss" in line)
    assert 1 < last["round"] < 50
    assert summary["targets"]["1.5"] == {
        name: last[name] for name in ("round", "paper_bits", "wire_bytes_up", "wire_bytes_down")
    }


def test_a_run_repeats_from_its_own_configuration_file(finished: Path, tmp_path: Path) -> None:
    again = runner.run(load_config(finished / "config.toml"), tmp_path / "b")
    assert again["model_sha256"] == summary_of(finished)["model_sha256"]
    assert without_times(finished) == without_times(tmp_path / "b")
    other = runner.run(load_config(finished / "config.toml", {"seed": 1}), tmp_path / "c")
    assert other["model_sha256"] != again["model_sha256"]


@pytest.mark.parametrize("stop", [1, 5])
def test_a_run_interrupted_in_any_round_goes_on_to_the_same_model(
    small: Config, finished: Path, tmp_path: Path, stop: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        runner.run(small, tmp_path / "cut", interrupt_after(stop))
    saved = checkpoint.load(tmp_path / "cut" / "checkpoint")
    assert saved is not None
    assert saved["run"]["round"] == stop  # nothing that was finished is lost
    assert runner.resume(tmp_path / "cut")["model_sha256"] == summary_of(finished)["model_sha256"]
    assert without_times(tmp_path / "cut") == without_times(finished)


@pytest.mark.parametrize(("method", "downlink"), [("auto", "late"), ("dadaquant", "exact")])
def test_every_rule_and_downlink_resumes_to_the_same_model(
    small: Config, tmp_path: Path, method: str, downlink: str
) -> None:
    config = replace(small, rule=method, downlink=downlink, partition="dirichlet(0.5)", rounds=4)
    whole = runner.run(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        runner.run(config, tmp_path / "cut", interrupt_after(2))
    assert runner.resume(tmp_path / "cut")["model_sha256"] == whole["model_sha256"]
    assert without_times(tmp_path / "cut") == without_times(tmp_path / "whole")


def test_damage_after_the_checkpoint_s_round_is_played_again(small: Config, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        runner.run(small, tmp_path / "cut", interrupt_after(4))
    with (tmp_path / "cut" / "history.jsonl").open("ab") as lines:
        lines.write(b"null\n\xff\xfe\n" + bytes(512))
    assert runner.resume(tmp_path / "cut")["model_sha256"] == summary_of(finished)["model_sha256"]
    assert without_times(tmp_path / "cut") == without_times(finished)


def test_a_run_without_a_checkpoint_starts_again_and_says_so(finished: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole, before = summary_of(finished), without_times(finished)
    (finished / "checkpoint" / "state.npz").unlink()
    (finished / "summary.json").unlink()
    assert runner.resume(finished)["model_sha256"] == whole["model_sha256"]
    assert without_times(finished) == before
    assert "has no checkpoint yet: the run starts again, with its configuration" in caplog.text


# Error feedback: what clients keep from round to round is part of a run.


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])  # eight processes load PyTorch
def test_a_run_with_late_updates_resumes_to_the_same_model_with_any_number_of_workers(
    small: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    rule = {"name": "auto", "noise": 0.1}  # so little noise that updates are late as soon as they may be
    config = replace(small, rule=rule, quantizer="", downlink="exact", rounds=6, workers=1)
    whole = runner.run(config, tmp_path / "whole")
    saved = checkpoint.load(tmp_path / "whole" / "checkpoint")
    assert saved is not None
    assert all(np.any(client["remainder"]["value"]) for client in saved["clients"].values()), "the last ones were late"
    for stop in (1, 5):
        with pytest.raises(KeyboardInterrupt):
            runner.run(replace(config, workers=workers), tmp_path / f"cut{stop}", interrupt_after(stop))
        assert runner.resume(tmp_path / f"cut{stop}")["model_sha256"] == whole["model_sha256"]
        assert without_times(tmp_path / f"cut{stop}") == without_times(tmp_path / "whole")
    assert "error feedback" not in caplog.text, "nothing was lost"


@pytest.fixture
def stc(small: Config) -> Config:
    return replace(small, quantizer={"name": "stc", "sparsity": 50}, rule="1bit", rounds=4)


def test_what_clients_keep_is_in_files_above_a_limit_and_the_model_is_the_same(
    stc: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runner.run(stc, tmp_path / "whole")
    monkeypatch.setattr(kept, "IN_MEMORY_BYTES", 150_000)  # one vector of the model's 25,450 elements
    put, mapped = kept._mapped, list[Path | None]()

    def mapping(array: Any, folder: Path | None) -> Any:
        mapped.append(folder)
        return put(array, folder)

    monkeypatch.setattr(kept, "_mapped", mapping)
    with pytest.raises(KeyboardInterrupt):
        runner.run(stc, tmp_path / "cut", interrupt_after(3))
    during = len(mapped)
    assert during > 3
    assert runner.resume(tmp_path / "cut")["model_sha256"] == whole["model_sha256"]
    assert len(mapped) > during
    assert set(mapped) == {tmp_path / "cut"}
    names = [{file.name for file in (tmp_path / name).iterdir()} for name in ("whole", "cut")]
    assert names[0] == names[1], "the files are gone with the process"


def test_a_full_disk_leaves_what_clients_keep_in_memory(
    stc: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = runner.run(stc, tmp_path / "whole")

    def full(array: Any, folder: Path | None) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(kept, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(kept, "_mapped", full)
    assert runner.run(stc, tmp_path / "run")["model_sha256"] == whole["model_sha256"]
    assert caplog.text.count("stays in memory, since it cannot be written: No space left") == 1


def test_a_run_whose_remainders_are_gone_is_resumed_and_says_so(
    stc: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner.run(replace(stc, rounds=2), tmp_path / "run")
    folder = tmp_path / "run" / "checkpoint"
    saved = checkpoint.load(folder)
    assert saved is not None
    assert set(saved["clients"]) == {"0", "1", "2"}
    checkpoint.save({**saved, "clients": {}}, folder)
    assert runner.resume(tmp_path / "run", {"rounds": 4})["rounds"] == 4
    assert "error feedback" in caplog.text
    assert "all of them" in caplog.text


def test_an_engine_without_its_clients_state_does_not_go_on_with_such_a_run(stc: Config, tmp_path: Path) -> None:
    class Elsewhere(LocalEngine):
        def restore_clients(self, states: Mapping[str, Any]) -> None:
            Engine.restore_clients(self, states)

    runner.run(replace(stc, rounds=2), tmp_path / "run")
    with pytest.raises(aq.CheckpointError, match=r"3 clients .* --engine local"):
        runner.resume(tmp_path / "run", {"rounds": 4}, connect=Elsewhere)


def test_the_codec_changes_the_bytes_and_nothing_else(small: Config, tmp_path: Path) -> None:
    assert small.codec == "auto"
    summaries = {
        codec: runner.run(replace(small, rounds=3, codec=codec), tmp_path / codec)
        for codec in ("auto", "fixed", "sparse", "dense")
    }
    for key in ("model_sha256", "paper_bits", "final_loss"):
        assert len({summary[key] for summary in summaries.values()}) == 1
    up = {codec: summary["wire_bytes_up"] for codec, summary in summaries.items()}
    assert up["auto"] <= min(up.values())
    assert up["fixed"] > 5 * up["auto"]


# Resuming a finished run.


def test_a_finished_run_is_not_played_again(finished: Path) -> None:
    before = (finished / "history.jsonl").read_bytes()
    assert runner.resume(finished) == summary_of(finished)
    assert (finished / "history.jsonl").read_bytes() == before


def test_a_finished_run_can_be_made_longer(small: Config, finished: Path, tmp_path: Path) -> None:
    long = runner.run(replace(small, rounds=8), tmp_path / "long")
    assert runner.resume(finished, {"rounds": 8})["model_sha256"] == long["model_sha256"]
    assert load_config(finished / "config.toml").rounds == 8


def test_a_run_cannot_be_made_shorter(finished: Path) -> None:
    with pytest.raises(aq.CheckpointError, match="longer, not shorter"):
        runner.resume(finished, {"rounds": 5})
    assert load_config(finished / "config.toml").rounds == 6


# Folders that are something else.


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("summary.json", b"{", "damaged"),
        ("history.jsonl", b"\xff\xfe\n", "Line 1 of .* is damaged"),
        ("history.jsonl", b"", "lines were removed"),
        ("history.jsonl", b'{"round": null, "wire_bytes_up": 1}\n' * 6, "Line 1 of .* is damaged"),
        ("history.jsonl", b"[" * 100_000 + b"\n", "Line 1 of .* is damaged"),
        ("config.toml", b"\xff\xfe", "UTF-8"),
        ("config.toml", b"", "Put that back"),
        ("checkpoint/state.npz", b"PK\3\4 and then something else", "damaged"),
    ],
)
def test_a_damaged_file_is_named(finished: Path, name: str, content: bytes, words: str) -> None:
    (finished / name).write_bytes(content)
    with pytest.raises(aq.AdaQuantError, match=words):
        runner.resume(finished, {"rounds": 8} if name == "history.jsonl" else {})


def test_a_configuration_that_was_cut_short_is_refused_without_a_checkpoint_too(finished: Path) -> None:
    (finished / "checkpoint" / "state.npz").unlink()
    text = (finished / "config.toml").read_text()
    for cut in ("", "".join(text.splitlines(keepends=True)[:4])):
        (finished / "config.toml").write_text(cut)
        with pytest.raises(aq.CheckpointError, match="is incomplete"):
            runner.resume(finished)


def test_a_folder_with_a_run_is_not_written_over(small: Config, finished: Path) -> None:
    with pytest.raises(aq.CheckpointError, match="--resume"):
        runner.run(small, finished)


def test_two_processes_cannot_work_on_one_run(finished: Path) -> None:
    command = f"""
from pathlib import Path
from adaquantfl.runs.directory import RunDirectory
held = RunDirectory(Path({str(finished)!r}))
held.resume({{}})
print(flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        for _ in range(2):  # asking does not take away what the sentence says
            with pytest.raises(aq.CheckpointError, match=rf"Another process \(pid {other.pid} on .*\) is working on"):
                runner.resume(finished)
        other.kill()
    assert runner.resume(finished) == summary_of(finished), "the lock went with its process"


def test_missing_data_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAQUANTFL_DATA", str(tmp_path / "nothing"))
    with pytest.raises(aq.DataError, match="adaquantfl data get fashion-mnist"):
        runner.run(load_config("fmnist-cnn-iid"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_without_the_losses_that_it_refuses(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Trainer.loss
    monkeypatch.setattr(Trainer, "loss", lambda self, client, w: -1e9 if client == 2 else honest(self, client, w))
    summary = runner.run(replace(small, target_loss=0.001, evaluate_every=2), tmp_path / "run")
    assert summary["rounds"] == small.rounds, "the false loss is not the target"
    assert 0 < summary["final_loss"] < summary["initial_loss"]
    evaluated = [line for line in history(tmp_path / "run") if "loss" in line or "rule_loss" in line]
    assert evaluated
    assert all(list(line["refused_losses"]) == ["2"] for line in evaluated)


def test_one_client_cannot_move_the_rule_with_its_first_loss(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of 1e300 as f(w_0) would make AdaQuant take 65,535 levels for the rest of the run."""
    honest, told = Trainer.loss, []

    def lying(self: Trainer, client: int, w: Any) -> float:
        told.append(client)
        return 1e300 if client == 2 and told.count(2) <= 2 else honest(self, client, w)

    plain = runner.run(replace(small, evaluate_every=2), tmp_path / "plain")
    monkeypatch.setattr(Trainer, "loss", lying)
    found = runner.run(replace(small, evaluate_every=2), tmp_path / "run")
    assert found["wire_bytes_up"] < 2 * plain["wire_bytes_up"]
    lines = history(tmp_path / "run")
    assert [line["bounded"] for line in lines if "bounded" in line] == [[2]]
    assert max(line.get("loss", line.get("rule_loss", 0.0)) for line in lines) > 1e290  # what clients said


def test_what_error_feedback_left_over_survives_an_interruption_in_the_middle_of_a_round(
    stc: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runner.run(stc, tmp_path / "whole")
    train = Trainer.train

    def cut(self: Trainer, client: int, weights: Any, round: int, eta: float) -> Any:
        if (round, client) == (2, 2):  # two clients have played this round, and have new remainders
            raise KeyboardInterrupt
        return train(self, client, weights, round, eta)

    monkeypatch.setattr(Trainer, "train", cut)
    with pytest.raises(KeyboardInterrupt):
        runner.run(stc, tmp_path / "cut")
    monkeypatch.undo()
    assert runner.resume(tmp_path / "cut")["model_sha256"] == whole["model_sha256"]
