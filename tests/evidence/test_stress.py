"""Harder trainings: each changes one thing, and the table tells divergence and growing rounds apart from a miss."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from evidence.studies import stress
from evidence.studies.floor.methods import FLOAT32, METHODS, OURS
from evidence.studies.floor.records import Record


def write(folder: Path, method: str, up: list[int], top: float = 0.8, failure: str = "") -> None:
    task, places = stress.tasks()[0], list(range(5, 65, 5))
    values = [min(top, 0.02 * place) for place in places]
    one = Record(task.name, method, "", 0, True, places[: len(up)], values[: len(up)], up, up, failure, 1.0, "commit")
    with (folder / f"{task.name}.jsonl").open("a") as file:
        file.write(json.dumps(asdict(one)) + "\n")


@pytest.mark.parametrize("task", stress.tasks(), ids=lambda task: task.name)
def test_our_rules_have_nothing_set_and_the_training_is_harder(task: stress.FloorTask) -> None:
    for rule in stress.RULES:
        (setting,) = METHODS[rule]
        config = setting.config(task, 0, task.rounds)
        assert not set(setting.keys) & {"rule_s0", "repair", "harm", "error", "delay"}
        plain = setting.config(stress.TASKS["mlp-sorted" if "sorted" in task.name else "mlp-iid"], 0, task.rounds)
        assert config != plain


def test_the_table_has_what_became_of_each_rule(tmp_path: Path) -> None:
    steady = [1000 * place for place in range(1, 13)]
    write(tmp_path, FLOAT32, [40 * one for one in steady])
    write(tmp_path, OURS, [*steady[:9], 12_000, 15_000, 18_000])
    _, row = stress.table(tmp_path)
    assert row[1:] == ["80.0", OURS, "80.0", "1 of 1", "0", "18.0", "3.00"]


def test_a_run_that_diverged_is_counted_as_such(tmp_path: Path) -> None:
    write(tmp_path, FLOAT32, [40 * place for place in range(1, 13)])
    write(tmp_path, OURS, [10, 20, 30, 40], failure="Round 20: not finite.")
    _, row = stress.table(tmp_path)
    assert row[3:] == ["diverged", "0 of 1", "1", "0.04", "—"]
