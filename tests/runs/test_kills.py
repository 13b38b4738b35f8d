"""A run survives a kill at any place and Ctrl-C, and a checkpoint is either the old or the new one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import adaquantfl as aq
from adaquantfl import checkpoint
from adaquantfl.runs import loop
from adaquantfl.runs.config import Config
from support import killed_runs
from support.processes import alive, children, wait_until
from support.small_runs import history, without_times


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_in_the_same_model(small: Config, tmp_path: Path) -> None:
    """With all that a run keeps from round to round: error feedback on both ways."""
    config = replace(small, rounds=6, checkpoint_every=2, quantizer="nearest", rule="2bit", downlink="late")
    whole = loop.run(config, tmp_path / "whole")
    places = ["line-1", "training-3", "half-4", "checkpoint-4"]
    command = [sys.executable, killed_runs.__file__, str(tmp_path / "run"), json.dumps(config.to_dict()), *places]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert loop.resume(tmp_path / "run")["model_sha256"] == whole["model_sha256"]
    assert without_times(tmp_path / "run") == without_times(tmp_path / "whole")


def start(config: Config, out: Path) -> subprocess.Popen[bytes]:
    """A run in a process of its own, with its history so far on disk after every round."""
    file = out.with_suffix(".toml")
    file.write_text(tomli_w.dumps(config.to_dict()))
    return subprocess.Popen(
        [sys.executable, "-m", "adaquantfl", "run", str(file), "--out", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A shell starts its background jobs, and so perhaps these tests, with Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_rounds(run: Path, rounds: int, process: subprocess.Popen[bytes]) -> None:
    def there() -> bool:
        assert process.poll() is None, process.communicate()
        history = run / "history.jsonl"
        return history.exists() and history.read_bytes().count(b"\n") >= rounds

    wait_until(there, 240, f"{rounds} rounds of {run}")


@pytest.mark.slow  # two pools of workers: 20 seconds of processor time
@pytest.mark.parametrize("stopped_by", [signal.SIGINT, signal.SIGKILL])
def test_a_run_with_workers_that_is_stopped_leaves_no_process_and_can_be_resumed(
    small: Config, tmp_path: Path, stopped_by: signal.Signals
) -> None:
    run = tmp_path / "run"
    process = start(replace(small, rounds=100_000, workers=2, checkpoint_every=1), run)
    wait_for_rounds(run, 3, process)
    workers = children(process.pid)
    assert len(workers) >= 2
    os.kill(process.pid, stopped_by)
    _, errors = process.communicate(timeout=240)
    wait_until(lambda: not any(map(alive, workers)), 240, "workers notice that nobody is there any more")
    if stopped_by == signal.SIGINT:
        assert process.returncode == 130
        assert f"adaquantfl run --resume {run}" in errors.decode()
        assert b"Traceback" not in errors
    done = len(history(run))
    assert loop.resume(run, {"rounds": done + 2, "workers": 1})["rounds"] == done + 2


# The file.


def test_any_plain_tree_comes_back_from_its_file(tmp_path: Path) -> None:
    tree = {
        "numbers": [1, 2.5, None, True, float("inf")],
        "text": "é",
        "arrays": {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "none": np.empty(0, dtype=np.int64)},
        "bytes": [b"", b"\0\xff" * 9],
        "empty": {},
    }
    assert checkpoint.load(tmp_path) is None
    checkpoint.save(tree, tmp_path)
    found = checkpoint.load(tmp_path)
    assert found is not None
    assert {**found, "arrays": None} == {**tree, "arrays": None}
    for name, array in tree["arrays"].items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(found["arrays"][name], array)
        assert found["arrays"][name].dtype == array.dtype


def test_a_checkpoint_of_an_older_version_is_named(finished: Path) -> None:
    path, history = finished / "checkpoint" / "state.npz", (finished / "history.jsonl").read_bytes()
    np.savez(path, meta=np.array(json.dumps({"format": 1, "round": 6})), weights=np.zeros(3, dtype=np.float32))
    with pytest.raises(aq.CheckpointError, match=r"format 1; this version reads 3\. Resume it with the version"):
        loop.resume(finished, {"rounds": 8})
    assert (finished / "history.jsonl").read_bytes() == history
    assert (finished / "summary.json").is_file()
