"""The best constant found afterwards, and float32's luck: what the tables make of records."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from evidence.studies.floor import constants, lag, luck, records
from evidence.studies.floor.methods import CONSTANT, FLOAT32, OURS
from evidence.studies.floor.tasks import TASKS


def write(folder: Path, task: str, rounds: int, method: str, setting: str, seed: int, rate: int, top: float) -> None:
    """A run whose accuracy rises to `top` within its rounds, at this many bytes for each."""
    places = list(range(1, rounds + 1))
    values = [min(top, 0.1 + top * place / rounds) for place in places]
    up = [rate * place for place in places]
    one = records.Record(
        task=task, method=method, setting=setting, seed=seed, accuracy=True, round=places, value=values, up=up, down=up,
        failure="", seconds=1.0, commit="commit",
    )  # fmt: skip
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


def run(values: list[float], method: str = FLOAT32, seed: int = 0, accuracy: bool = True) -> records.Record:
    rounds = list(range(1, len(values) + 1))
    return records.Record(
        task="logistic-iid", method=method, setting="", seed=seed, accuracy=accuracy, round=rounds, value=values,
        up=rounds, down=rounds, failure="", seconds=1.0, commit="commit",
    )  # fmt: skip


def test_a_lag_is_counted_in_rounds_to_a_share_of_what_float32_learns() -> None:
    rising = run([0.1 * one for one in range(1, 9)] + [0.8] * 8)
    assert lag.goals(rising) == pytest.approx((0.64, 0.76))
    assert lag.rounds_to(rising, 0.64) == pytest.approx(6.4)
    assert lag.rounds_to(rising, 0.9) == float("inf")
    falling = run([4.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0], accuracy=False)
    assert lag.goals(falling) == pytest.approx((1.6, 1.09))
    assert lag.rounds_to(falling, 2.5) == pytest.approx(2.5)


def test_one_round_above_the_goal_is_not_there_yet() -> None:
    assert lag.rounds_to(run([0.1, 0.1, 0.9, 0.1, 0.1, 0.1]), 0.5) == float("inf")


def test_twice_the_rounds_is_a_lag_of_two_and_misses_come_first(tmp_path: Path) -> None:
    floor, folder = tmp_path / "floor", tmp_path / "luck"
    fast = [0.02 * min(one, 40) for one in range(1, 51)]
    slow = [0.01 * min(one, 80) for one in range(1, 101)]
    for where, made in ((floor, [run(fast), run(slow, OURS)]), (folder, [run(fast, luck.AGAIN)])):
        where.mkdir()
        (where / "logistic-iid.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in made))
    (found,) = lag.lags(floor, folder)
    assert found.ours == (pytest.approx([2.0]), pytest.approx([2.0]))
    assert found.again == ([1.0], [1.0])
    verdicts = [aim.met for aim in lag.aims(floor, folder)]
    assert verdicts[:4] == [False] * 4
    assert verdicts == sorted(verdicts)
    assert lag.table(floor, folder)[-1][1:] == ["**2.00**", "**1.00**", "**2.00**", "**1.00**"]
