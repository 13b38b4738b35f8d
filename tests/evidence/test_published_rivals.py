"""EF21, DIANA, KLMS and DeComFL do what their papers say."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

import adaquantfl as aq
from evidence.studies.floor import decomfl, methods
from evidence.studies.floor.klms import klms
from evidence.studies.floor.shifts import diana, ef21
from evidence.studies.floor.tasks import TASKS

SHAPES = ((100, 50), (40,))
UPDATES = {client: np.random.default_rng(client).standard_normal(5040).astype(np.float32) for client in (0, 1)}
HALVES = dict.fromkeys(UPDATES, 0.5)


def error(values: dict[int, np.ndarray]) -> float:
    return max(float(np.sum((values[c] - u) ** 2) / np.sum(u**2)) for c, u in UPDATES.items())


def test_shifts_of_ef21_become_an_update_that_stays() -> None:
    """A biased compressor without a shift would leave the same elements out in every round."""
    method = ef21(0.1)(SHAPES)
    errors = [error(method.exchange(UPDATES, HALVES, 0, round).values) for round in range(12)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.4
    assert errors[-1] < 1e-12


def test_shifts_of_diana_take_the_noise_from_an_update_that_stays() -> None:
    method = diana(16)(SHAPES)
    omega = aq.theory.variance_bound(5000, 16)
    errors = [error(method.exchange(UPDATES, HALVES, 0, round).values) for round in range(60)]
    assert errors[0] <= 2 * omega
    assert errors[-1] < 0.05 * errors[0]


def test_klms_takes_far_fewer_bytes_than_the_levels_that_it_draws() -> None:
    method = klms(4)(SHAPES)
    first = method.exchange(UPDATES, HALVES, 0, 0)
    later = [method.exchange(UPDATES, HALVES, 0, round) for round in range(1, 41)]
    assert max(one.up for one in later) < 0.6 * first.up
    mean = np.mean([one.values[0] for one in later], axis=0)
    kept = float(mean @ UPDATES[0] / np.sum(UPDATES[0] ** 2))
    assert 0.6 < kept < 1.05  # 256 candidates shrink what they code, as the paper's bound says


def test_slopes_of_decomfl_are_those_of_the_loss() -> None:
    config = methods.METHODS[methods.DECOMFL][0].config(TASKS["logistic-iid"], seed=0, rounds=2)
    net = decomfl.Net(config)
    batch = next(net.batches(0, 0))
    directions = torch.randn(config.tau, 2, len(net.start), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = decomfl._slopes(net, net.start, directions, iter([batch]), eta=0.01)
    model = net.at(net.start.clone())
    net.task.loss(model(batch[0]), batch[1]).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert found[0].tolist() == pytest.approx((directions[0] @ gradient).tolist(), rel=0.05)


def test_decomfl_sends_scalars_alone_and_learns() -> None:
    setting = methods.METHODS[methods.DECOMFL][1]
    config = setting.config(TASKS["logistic-iid"], seed=0, rounds=40)
    lines = list(islice(setting.rounds(config), 40))
    assert lines[-1].up == 40 * 8 * config.tau * decomfl.DIRECTIONS * 4
    assert lines[-1].passes == 40 * 8 * config.tau * (decomfl.DIRECTIONS + 1) * config.batch_size
    assert lines[9].value is not None
    assert lines[-1].value is not None
    assert lines[-1].value > max(lines[9].value, 0.3)
