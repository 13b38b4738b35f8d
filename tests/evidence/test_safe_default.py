"""The study of the default: what is compared with what."""

from __future__ import annotations

from pathlib import Path

import pytest

import adaquantfl as aq
from evidence.studies import safe_default
from evidence.studies.safe_default import Row


@pytest.mark.parametrize("task", [task for task in safe_default.TASKS if task != "lora"])
def test_the_default_has_nothing_set(task: str, tmp_path: Path) -> None:
    ours, plain = (safe_default.job(task, method, 0, tmp_path).config for method in ("auto", "fp32"))
    assert (ours.method, ours.quantizer["name"], ours.downlink["name"]) == ("auto", "fitted", "late")
    assert ours.make_rule() == aq.Auto()
    assert (plain.method, plain.downlink["name"]) == ("fp32", "model")
    assert (ours.rounds, ours.clients, ours.eta) == (plain.rounds, plain.clients, plain.eta)


def test_behind_means_a_lower_accuracy_or_a_higher_loss() -> None:
    row = Row("mlp", 10, "accuracy", (0.80, 0.82), (0.79, 0.81), 50, 20)
    assert row.deviations == pytest.approx(0.01 / 0.01414, rel=1e-3)
    loss = Row("language", 10, "test loss", (2.0, 2.2), (2.1, 2.3), 50, 20)
    assert loss.deviations == pytest.approx(0.1 / 0.1414, rel=1e-3)
    assert "| 1/50 | 1/20 |" in safe_default.table([row])
