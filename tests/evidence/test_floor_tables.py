"""The best constant found afterwards, and float32's luck: what the tables make of records."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from evidence.studies.floor import constants, luck, records
from evidence.studies.floor.methods import CONSTANT, FLOAT32, OURS
from evidence.studies.floor.tasks import TASKS


def write(folder: Path, task: str, rounds: int, method: str, setting: str, seed: int, rate: int, top: float) -> None:
    """A run whose accuracy rises to `top` within its rounds, at this many bytes for each."""
    places = list(range(1, rounds + 1))
    values = [min(top, 0.1 + top * place / rounds) for place in places]
    up = [rate * place for place in places]
    one = records.Record(task, method, setting, seed, True, places, values, up, up, "", 1.0, "commit")
    folder.mkdir(exist_ok=True)
    with (folder / f"{task}.jsonl").open("a") as file:
        file.write(json.dumps(asdict(one)) + "\n")


def test_the_best_constant_is_the_cheapest_that_got_there_with_every_seed(tmp_path: Path) -> None:
    task, floor, folder = "logistic-iid", tmp_path / "floor", tmp_path / "constants"
    rounds = TASKS[task].rounds
    for seed in (0, 1):
        for where in (floor, folder):
            write(where, task, rounds, FLOAT32, "", seed, 1000, 0.8)
        write(floor, task, rounds, OURS, "nothing set", seed, 15, 0.8)
        write(folder, task, rounds, CONSTANT, "s = 0.1", seed, 5, 0.8 if seed else 0.7)
        write(folder, task, rounds, CONSTANT, "s = 0.5", seed, 10, 0.8)
        write(folder, task, rounds, CONSTANT, "s = 2", seed, 20, 0.8)
    _, row = constants.table(floor, folder)
    assert row[0] == TASKS[task].title
    assert row[2] == "s = 0.5"
    assert row[4:] == ["1.50", "2 of 3"]


def test_without_a_constant_that_got_there_nothing_is_compared(tmp_path: Path) -> None:
    task = "logistic-iid"
    write(tmp_path, task, TASKS[task].rounds, FLOAT32, "", 0, 1000, 0.8)
    write(tmp_path, task, TASKS[task].rounds, OURS, "nothing set", 0, 15, 0.8)
    write(tmp_path, task, TASKS[task].rounds, CONSTANT, "s = 1", 0, 15, 0.7)
    _, row = constants.table(tmp_path, tmp_path)
    assert row[2:] == ["none", "—", "—", "0 of 1"]


def test_float32_with_other_batches_says_how_much_is_luck(tmp_path: Path) -> None:
    task, floor, folder = "logistic-iid", tmp_path / "floor", tmp_path / "luck"
    rounds = TASKS[task].rounds
    for seed in (0, 1):
        write(floor, task, rounds, FLOAT32, "", seed, 1000, 0.8)
        write(floor, task, rounds, OURS, "nothing set", seed, 15, 0.8 if seed else 0.7)
        write(folder, task, rounds, FLOAT32, "", seed, 1000, 0.5)  # of another study: the floor's target counts
        write(folder, task, 2 * rounds, luck.AGAIN, "batches 1", seed, 10, 0.8)
        write(folder, task, rounds, luck.AGAIN, "batches 2", seed, 10, 0.8 if seed else 0.7)
    _, row = luck.table(floor, folder)
    assert row[:2] == [TASKS[task].title, "3 of 4"]
    assert float(row[2]) == pytest.approx((2 + 2 + 1) / 3, abs=0.1)  # trailing means take a little less than twice
    assert row[3] == "1 of 2"
