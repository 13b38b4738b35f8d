"""The same private run on every engine, bit for bit, and what its record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import adaquantfl as aq
from adaquantfl.engines.launch import launch
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import Request, resume, run
from adaquantfl.runs.records import load_run

SMALL = {
    "model": "mlp", "clients": 5, "rounds": 3, "tau": 2, "rule": "fp32", "evaluate_every": 3, "loss_samples": 32,
}  # fmt: skip


def config(**changes: Any) -> Config:
    return load_config("demo", {**SMALL, "workers": 1, "private": "masked", **changes})


def test_a_record_says_what_a_private_run_cost(tmp_path: Path) -> None:
    summary = run(config(), tmp_path / "run")
    record = load_run(tmp_path / "run")
    assert record.label == "masked"
    assert summary["mean_masked_bits"] == pytest.approx(1.0, abs=0.01)
    assert summary["paper_bits"] is None
    assert record.final("paper_bits") is None
    assert [line["clients"] for line in record.history] == [5, 5, 5]
    assert record.history[-1]["round_loss"] > 0
    assert summary["final_loss"] < summary["initial_loss"]


def test_workers_and_a_resumed_run_give_the_same_model(tmp_path: Path) -> None:
    whole = run(config(rounds=4), tmp_path / "whole")["model_sha256"]
    assert run(config(rounds=4, workers=2), tmp_path / "two")["model_sha256"] == whole
    run(config(rounds=2), tmp_path / "half")
    assert resume(tmp_path / "half", {"rounds": 4})["model_sha256"] == whole


def test_epsilon_is_in_history_and_summary_and_a_run_ends_at_its_budget(tmp_path: Path) -> None:
    noisy = {"name": "distributed", "noise": 1.0, "epsilon": 8.0}
    with pytest.raises(aq.AdaQuantError, match="would spend epsilon"):
        run(config(rounds=5, private=noisy), tmp_path / "run")
    history = load_run(tmp_path / "run").history
    assert [line["round"] for line in history] == [1, 2]
    with pytest.raises(aq.AdaQuantError, match="would spend epsilon"):  # nor is it resumed beyond it
        resume(tmp_path / "run")
    summary = run(config(rounds=2, private=noisy), tmp_path / "within")
    assert summary["epsilon"] == history[-1]["epsilon"] <= 8.0


@pytest.mark.slow
def test_gloo_carries_private_rounds(tmp_path: Path) -> None:
    expected = run(config(), tmp_path / "local")["model_sha256"]
    found = launch("gloo", Request(tmp_path / "gloo", config(workers=2)))
    assert found is not None
    assert found["model_sha256"] == expected
