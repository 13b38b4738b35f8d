"""Rivals at float32's accuracy: the short loop is the engine's, rivals send as published, luck is no crossing."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs.loop import Run
from adaquantfl.training.trainer import Trainer
from evidence.studies.floor import loop, methods, records, rivals, summary, tables
from evidence.studies.floor.powersgd import PowerSGD
from evidence.studies.floor.records import Record
from evidence.studies.floor.tasks import TASKS, TRIAL, TRIAL_SEED, compared_every

LENGTHS = (5000, 40, 700)
UPDATE = np.random.default_rng(3).standard_normal(sum(LENGTHS)).astype(np.float32)


def record(values: list[float], method: str = methods.OURS, each: int = 10, **changes: object) -> Record:
    rounds = [2 * (place + 1) for place in range(len(values))]
    up = [each * one for one in rounds]
    known = Record(
        task="mlp-iid", method=method, setting="", seed=0, accuracy=True, round=rounds, value=values, up=up,
        down=[3 * one for one in up], failure="", seconds=1.0, commit="c",
    )  # fmt: skip
    return replace(known, **changes)  # type: ignore[arg-type]  # the fields' own types


@pytest.mark.parametrize("name", ["mlp-dirichlet", "logistic-sorted-5-of-100"])
def test_the_short_loop_with_float32_is_the_engine_bit_for_bit(name: str) -> None:
    setting = methods.METHODS[methods.FLOAT32][0]
    config = setting.config(TASKS[name], seed=1, rounds=4)
    *_, (line, model) = loop.short_loop(config, rivals.frames(rivals.float32))
    engine = LocalEngine(config)
    run = Run(config, engine)
    while not run.finished:
        last = run.play_round(lambda line: None)
    engine.close()
    assert np.array_equal(model.weights, run.server.model.weights)
    assert line.value == last["test_accuracy"]
    assert line.up == run.state.ledger.payload_bytes_up


def test_other_batches_train_the_same_clients_on_other_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    config = methods.METHODS[methods.FLOAT32][0].config(TASKS["logistic-sorted-5-of-100"], seed=1, rounds=3)
    asked: list[tuple[int, int]] = []
    train = Trainer.train

    def noted(self: Trainer, client: int, weights: Any, round: int, eta: float) -> Any:
        asked.append((client, round))
        return train(self, client, weights, round, eta)

    monkeypatch.setattr(Trainer, "train", noted)
    seen = {}
    for batches in (0, 1):
        asked.clear()
        *_, (_, model) = loop.short_loop(config, rivals.frames(rivals.float32), batches)
        seen[batches] = [client for client, _ in asked], {round for _, round in asked}, model.weights
    assert seen[0][0] == seen[1][0]
    assert not seen[0][1] & seen[1][1]
    assert not np.array_equal(seen[0][2], seen[1][2])


@pytest.mark.parametrize("method", methods.METHODS)
def test_every_run_can_be_set_up(method: str) -> None:
    tasks = list(TASKS.values()) if method == methods.OURS else [TRIAL, TASKS["mlp-iid"]]
    for task, setting in product(tasks, methods.METHODS[method]):
        config = setting.config(task, seed=2, rounds=methods.rounds_of(method, task))
        assert (config.seed, config.evaluate_every) == (2, 1)


def test_nobody_has_more_trials_than_another_and_ours_has_none() -> None:
    assert {len(settings) for settings in methods.METHODS.values()} == {1, 4}
    assert len(methods.METHODS[methods.OURS]) == 1
    judged = {(task.source, task.settings.get("partition")) for task in TASKS.values()}
    assert (TRIAL.source, TRIAL.settings["partition"]) not in judged
    assert TRIAL_SEED not in range(3)


def test_top_k_sends_the_largest_and_counts_places_at_their_information() -> None:
    values, size = rivals.top_k(0.01)(UPDATE, LENGTHS, 0)
    kept = np.flatnonzero(values)
    assert len(kept) == 57
    assert np.abs(UPDATE[kept]).min() >= np.abs(np.delete(UPDATE, kept)).max()
    assert np.array_equal(values[kept], UPDATE[kept])
    assert size == math.ceil((32 * 57 + math.log2(math.comb(len(UPDATE), 57))) / 8)


@pytest.mark.parametrize(
    ("send", "bits"),
    [(rivals.int8, 8), (rivals.fedpaq(1), 2), (rivals.fedpaq(15), 5), (rivals.eden(1), 1), (rivals.eden(3), 3)],
)
def test_fixed_lengths_take_their_bits_and_a_scale_per_segment(send: rivals.Send, bits: int) -> None:
    values, size = send(UPDATE, LENGTHS, 7)
    assert 0 < size - bits * len(UPDATE) / 8 < 4 * 25  # EDEN cuts these tensors into 20 blocks or fewer
    assert np.corrcoef(values, UPDATE)[0, 1] > 0.1


def test_fedfq_gives_bits_where_they_save_the_most() -> None:
    sizes = np.abs(np.random.default_rng(1).standard_normal(6)).astype(np.float32)
    given = rivals.widths(sizes, 12.0)
    choices = [one for one in product(rivals.WIDTHS, repeat=6) if sum(one) <= 12]
    best = min(float(np.sum(sizes**2 / 4.0 ** np.array(one))) for one in choices)
    assert given.sum() <= 12
    assert float(np.sum(sizes**2 / 4.0**given)) == pytest.approx(best)


def test_fedfq_is_unbiased_for_what_it_sends_and_counts_the_widths() -> None:
    drawn = np.mean([rivals.fedfq(2)(UPDATE, LENGTHS, key)[0] for key in range(200)], axis=0)
    sent = drawn != 0
    assert np.abs(drawn - UPDATE)[sent].mean() < 0.1 * np.abs(UPDATE)[sent].mean()
    assert rivals.fedfq(2)(UPDATE, LENGTHS, 0)[1] > 2 * len(UPDATE) / 8


def test_powersgd_of_full_rank_is_exact_and_counts_both_factors_both_ways() -> None:
    shapes = ((4, 3, 5), (6,), (2, 2))
    size = sum(math.prod(shape) for shape in shapes)
    wanted = {c: np.random.default_rng(c).standard_normal(size).astype(np.float32) for c in range(3)}
    weights = dict.fromkeys(range(3), 1 / 3)
    one = PowerSGD(1, shapes).exchange(wanted, weights, 0, 0)
    assert one.at_once
    assert one.step == 4 * ((4 + 15) + 6 + 4)  # a matrix that factors would not make smaller goes as it is
    assert one.up == 3 * one.step
    for client, values in one.values.items():
        assert np.array_equal(values[60:], wanted[client][60:])
        assert np.linalg.matrix_rank(values[:60].reshape(4, 15)) == 1
    full = PowerSGD(3, ((4, 100),)).exchange({0: UPDATE[:400].copy()}, {0: 1.0}, 0, 0)
    again = PowerSGD(4, ((4, 200),)).exchange({0: UPDATE[:800].copy()}, {0: 1.0}, 0, 0)
    assert np.linalg.norm(full.values[0] - UPDATE[:400]) < np.linalg.norm(UPDATE[:400])
    assert np.array_equal(again.values[0], UPDATE[:800])


def test_a_client_gets_the_steps_it_missed_or_the_model() -> None:
    down = loop.Downlink(whole=100)
    down.serve({0: 1, 1: 1})
    assert down.sent == 200
    down.after_round(30)
    down.serve({0: 1})
    assert down.sent == 230
    for _ in range(3):
        down.after_round(30)
    down.serve({1: 1})  # four steps of 30 are more than the model
    assert down.sent == 330
    down.after_round(7, at_once={1: 1})
    down.serve({1: 1})
    assert down.sent == 337


def test_one_lucky_evaluation_reaches_nothing() -> None:
    lucky = record([0.1] * 10 + [0.9] + [0.1] * 10)
    assert lucky.spent(0.5, "up") is None
    assert record([0.1] * 4).spent(0.05, "up") is None  # too few evaluations for a mean


def test_a_crossing_lies_between_two_evaluations() -> None:
    rising = record([0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert rising.smoothed[:3] == pytest.approx([0.0, 0.1, 0.2])
    assert rising.spent(0.15, "round") == pytest.approx(13.0)
    assert rising.spent(0.15, "up") == pytest.approx(130.0)
    assert rising.spent(0.15, "both") == pytest.approx(520.0)
    falling = record([2.0] * 5 + [1.0] * 5, accuracy=False)
    assert falling.spent(1.5, "round") == pytest.approx(15.0)
    assert falling.target(20) == pytest.approx(1.005)
    assert rising.target(20) == pytest.approx(0.495)
    assert rising.final(22) is None  # it has not got that far


def test_methods_are_compared_only_where_all_were_evaluated() -> None:
    often = record([0.1 * one for one in range(1, 8)], round=list(range(1, 8)))
    assert often.compared().round == [2, 4, 6]
    assert often.compared().value == pytest.approx([0.2, 0.4, 0.6])
    last = methods.rounds_of(methods.FLOAT32, TASKS["logistic-iid-5-of-100"])
    assert last % compared_every(TASKS["logistic-iid-5-of-100"])  # the last round is evaluated all the same
    end = record([0.5, 0.6], methods.FLOAT32, task="logistic-iid-5-of-100", round=[last - 1, last])
    assert end.compared().round == [last]


def test_the_setting_with_the_fewest_bytes_on_the_trial_task_is_chosen(tmp_path: Path) -> None:
    good, settings = [0.5] * 30, methods.METHODS["EDEN"]
    runs = [record(good, methods.FLOAT32, task=TRIAL.name)]
    for place, setting in enumerate(settings):
        values = [0.1] * 30 if place == 0 else good
        runs.append(record(values, "EDEN", each=1 + place, setting=setting.label, task=TRIAL.name))
    file = tmp_path / f"{TRIAL.name}.jsonl"
    file.write_text("".join(json.dumps(asdict(one)) + "\n" for one in runs[:-1]))
    assert records.chosen("EDEN", tmp_path) is None  # one trial is missing
    file.write_text("".join(json.dumps(asdict(one)) + "\n" for one in runs))
    assert records.chosen("EDEN", tmp_path) == settings[1]


def test_a_finished_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(TASKS["logistic-iid"], rounds=10)
    monkeypatch.setitem(TASKS, "logistic-iid", task)
    for _ in range(2):
        records.run_missing(task, "int8", methods.METHODS["int8"][0], 0, tmp_path)
    found = records.load("logistic-iid", tmp_path)
    assert [one.method for one in found] == [methods.FLOAT32, "int8"]
    assert found[0].round[-1] == 10
    assert found[1].up[-1] < found[0].up[-1] / 3
    assert 10 <= found[1].round[-1] <= 12


def test_the_table_puts_the_fewest_bytes_first_and_says_who_never_got_there(tmp_path: Path) -> None:
    good = [0.1 * (place + 1) for place in range(5)] + [0.8] * 30
    runs = [
        record(good, methods.FLOAT32, each=1000),
        record(good, each=10),
        record(good, "top-k, error feedback", each=5),
        record([0.1] * 35, "int8", each=1),
        record(good[:8], "EDEN", each=1, failure="Round 17: it diverged."),
    ]
    (tmp_path / "mlp-iid.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in runs))
    grid = tables.details("mlp-iid", tmp_path)
    assert [row[0] for row in grid[1:4]] == ["top-k, error feedback", methods.OURS, methods.FLOAT32]
    assert [row[3] for row in grid[1:4]] == ["0.50", "1.00", "100.0"]
    assert grid[4][0:3] == ["int8", "—", "never"]
    assert grid[5][0] == "EDEN (1 of 1 diverged)"
    assert tables.details("mlp-sorted", tmp_path) == []


def test_who_is_ahead_is_counted_with_how_far(tmp_path: Path) -> None:
    good = [0.1 * (place + 1) for place in range(5)] + [0.8] * 30
    runs = [record(good, methods.FLOAT32, each=1000), record(good, each=10)]
    runs += [record(good, "EDEN", each=8), record(good, "int8", each=40), record([0.1] * 35, "FedPAQ")]
    (tmp_path / "mlp-iid.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in runs))
    rows = {row[0]: row[1:] for row in summary.by_method(tmp_path)}
    assert rows["EDEN"] == ["1 of 1", "0", "1", "0", "0.80", "0.80"]
    assert rows["int8"] == ["1 of 1", "0", "0", "0", "4.00", "4.00"]
    assert rows["FedPAQ"][:2] == ["0 of 1", "0"]
    stuck = [runs[0], record([0.1] * 35), runs[2]]
    (tmp_path / "mlp-iid.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in stuck))
    assert {row[0]: row[1:4] for row in summary.by_method(tmp_path)}["EDEN"] == ["1 of 1", "1", "0"]


def test_a_difference_within_the_deviation_is_a_tie(tmp_path: Path) -> None:
    good = [0.1 * (place + 1) for place in range(5)] + [0.8] * 30
    runs = [record(good, methods.FLOAT32, each=1000, seed=seed) for seed in range(2)]
    runs += [record(good, each=each, seed=seed) for seed, each in enumerate((10, 14))]
    runs += [record(good, "EDEN", each=11, seed=seed) for seed in range(2)]
    (tmp_path / "mlp-iid.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in runs))
    eden = next(one for one in summary.beside(tmp_path) if one.method == "EDEN")
    assert eden.tie
    assert not eden.ahead
