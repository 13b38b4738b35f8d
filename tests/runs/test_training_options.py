"""Runs with other optimizers, schedules and validation: repeatable, resumable, and stopped when they should be."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import adaquantfl as aq
from adaquantfl.engines.evaluation import Evaluation
from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs import loop
from adaquantfl.runs.config import Config
from support.small_runs import history, interrupt_after


def test_the_learning_rate_warms_up_and_falls_as_a_cosine() -> None:
    config = Config(rule="4bit", eta=0.2, eta_schedule="cosine", rounds=10, eta_warmup=3)
    rates = [config.learning_rate(k) for k in range(10)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[5] == pytest.approx(0.1)
    assert all(a > b > 0 for a, b in pairwise(rates[3:]))
    assert [Config(rule="4bit", eta_warmup=1).learning_rate(k) for k in range(3)] == pytest.approx([0.05, 0.1, 0.1])


def test_a_cosine_run_cannot_be_made_longer(small: Config, tmp_path: Path) -> None:
    config = replace(small, eta_schedule="cosine", rounds=2)
    loop.run(config, tmp_path / "run")
    with pytest.raises(aq.CheckpointError, match="eta_schedule = 'cosine'"):
        loop.resume(tmp_path / "run", {"rounds": 3})


class Scripted(LocalEngine):
    """The local engine, with validation losses from a list."""

    losses: tuple[float, ...] = ()

    def evaluate(self, server: Any, test: bool = True) -> Evaluation:
        found = super().evaluate(server, test)
        if not test:
            return found
        assert found.validation_loss is not None
        return replace(found, validation_loss=self.losses[server.current.round])


def scripted(*losses: float) -> loop.Connect:
    return type("Scripted", (Scripted,), {"losses": losses})


def test_a_run_stops_when_the_validation_loss_no_longer_falls(small: Config, tmp_path: Path) -> None:
    config = replace(small, rounds=6, evaluate_every=1, validation=0.2, early_stopping=2)
    connect = scripted(2.3, 1.0, 1.1, 0.9, 1.2, 0.95, 0.1)
    whole = loop.run(config, tmp_path / "whole", connect=connect)
    assert (whole["rounds"], whole["initial_validation_loss"], whole["final_validation_loss"]) == (5, 2.3, 0.95)
    assert [line["validation_loss"] for line in history(tmp_path / "whole")] == [1.0, 1.1, 0.9, 1.2, 0.95]
    with pytest.raises(KeyboardInterrupt):
        loop.run(config, tmp_path / "cut", interrupt_after(4), connect)
    assert loop.resume(tmp_path / "cut", connect=connect)["rounds"] == 5
    assert loop.resume(tmp_path / "cut", {"early_stopping": 0}, connect=connect)["rounds"] == 6
