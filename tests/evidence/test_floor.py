"""Rivals at float32's accuracy: the short loop is the engine's, rivals send as published, luck is no crossing."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs.loop import Run
from evidence.studies.floor import loop, methods, rivals
from evidence.studies.floor.powersgd import PowerSGD
from evidence.studies.floor.tasks import TASKS, TRIAL, TRIAL_SEED

LENGTHS = (5000, 40, 700)
UPDATE = np.random.default_rng(3).standard_normal(sum(LENGTHS)).astype(np.float32)


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
