"""Partial participation: seeded samples with unbiased weights, a loss that needs nobody else, and simulated time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol import server
from adaquantfl.protocol.cohort import cohort
from adaquantfl.protocol.messages import Federation, Model
from adaquantfl.runs.config import Config, Link, load_config
from adaquantfl.runs.link import Heard, round_seconds, speeds

SIZES = (10, 20, 30, 40, 100)
EMPTY = Model(np.zeros(1, dtype=np.float32), np.zeros(0, dtype=np.float32))
FEDERATION = Federation(EMPTY, (1,), SIZES)
PARTIAL = {"model": "mlp", "clients": 5, "clients_per_round": 2, "loss": "round", "workers": 1, "tau": 2}


def partial(**changes: object) -> Config:
    return load_config("demo", {**PARTIAL, **changes})


@pytest.mark.parametrize("sampling", ["uniform", "size"])
def test_the_expected_weights_are_those_of_the_data(sampling: str) -> None:
    """Mean of 20,000 rounds; a false alarm beyond 5 standard errors has probability below 1e-5."""
    config = partial(sampling=sampling)
    rounds = 20_000
    weights = np.zeros((rounds, 5))
    for k in range(rounds):
        for client, weight in cohort(config, FEDERATION, k).weights.items():
            weights[k, client] = weight
    error = np.abs(weights.mean(axis=0) - np.array(SIZES) / 200)
    assert (error < 5 * weights.std(axis=0) / rounds**0.5).all()


def test_a_sample_is_fixed_by_the_seed_and_new_each_round() -> None:
    config = partial()
    one = [cohort(config, FEDERATION, k).clients for k in range(30)]
    assert one == [cohort(config, FEDERATION, k).clients for k in range(30)]
    assert len(set(one)) > 5
    assert one != [cohort(replace(config, seed=1), FEDERATION, k).clients for k in range(30)]
    assert all(list(clients) == sorted(clients) and len(clients) == 2 for clients in one)


def test_everybody_is_the_weighted_mean_of_the_paper() -> None:
    assert cohort(partial(clients_per_round=0), FEDERATION, 3).weights == dict(enumerate(FEDERATION.weights))


def test_only_the_sample_is_asked_and_counted() -> None:
    config = partial(downlink="exact")
    engine = LocalEngine(config)
    state = server.start(config, engine)
    asked = []
    for k in range(6):
        state, line = server.play_round(state, config, engine)
        assert line["clients"] == 2
        asked += cohort(config, engine.federation, k).clients
    assert state.downlink is not None
    assert set(state.downlink.holds) == set(asked)


def test_the_model_moves_by_the_samples_weighted_updates() -> None:
    config = partial(method="fp32", partition="dirichlet(0.5)")
    engine = LocalEngine(config)
    state = server.start(config, engine)
    after, _ = server.play_round(state, config, engine)
    p = engine.federation.weights
    clients = cohort(config, engine.federation, 0).clients
    replies = list(engine.train(state.model, server.Plan(0, None, config.eta), clients))
    expected = sum(p[r.client] * 5 / 2 * aq.decode_float32(r.frame).astype(np.float64) for r in replies)
    np.testing.assert_allclose(after.model.weights - state.model.weights, expected, atol=1e-6)


def test_the_loss_is_smoothed_over_rounds() -> None:
    config = partial(loss_smoothing=0.8)
    engine = LocalEngine(config)
    state = server.start(config, engine)
    expected = None
    for _ in range(4):
        state, line = server.play_round(state, config, engine)
        expected = line["round_loss"] if expected is None else 0.8 * expected + 0.2 * line["round_loss"]
        assert state.round_loss == pytest.approx(expected)


def test_the_global_loss_comes_from_a_sample_of_all_data() -> None:
    config = partial()
    engine = LocalEngine(config)
    whole = LocalEngine(replace(config, clients_per_round=0, loss_samples=0))
    model = engine.federation.model
    assert engine.evaluate(model).loss == pytest.approx(whole.evaluate(model).loss, rel=0.02)
    assert engine.evaluate(model).accuracy == whole.evaluate(model).accuracy


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients_per_round": 6}, "only 5 clients"),
        ({"loss": "full"}, "set loss = 'round'"),
        ({"loss_smoothing": 1.0}, "below 1"),
        ({"sampling": "best"}, "uniform"),
        ({"link.up_mbps": 0}, "above 0"),
        ({"link.up_mbp": 3}, "Did you mean 'up_mbps'"),
        ({"link": 3}, "section"),
        ({"downlink": "exct"}, "Did you mean 'exact'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict, words: str) -> None:
    with pytest.raises(aq.ConfigError, match=words):
        partial(**changes)


def test_a_round_takes_as_long_as_its_slowest_client() -> None:
    link = Link(up_mbps=8, down_mbps=80, latency_ms=100, compute_seconds=0.5)
    heard = [Heard(0, 1_000_000, 9, 9), Heard(1, 2_000_000, 9, 9)]
    assert round_seconds(link, 0, heard, {0: 10_000_000, 1: 1_000_000}) == pytest.approx(0.2 + 0.1 + 2.0 + 0.5)
    measured = replace(link, compute_seconds=0.0)
    assert round_seconds(measured, 0, heard[:1], {0: 0}) == pytest.approx(0.2 + 1.0 + 18)


def test_clients_speeds_vary_by_seed_and_not_by_round() -> None:
    several = [speeds(0.5, 0, client) for client in range(2000)]
    assert several[0] == speeds(0.5, 0, 0) != speeds(0.5, 1, 0)
    assert np.std(np.log(several)) == pytest.approx(0.5, rel=0.05)
    assert speeds(0.0, 0, 7) == (1.0, 1.0, 1.0)


def test_simulated_time_adds_up_and_changes_nothing_else() -> None:
    plain, timed = partial(), partial(**{"link.up_mbps": 1.0})
    states = []
    for config in (plain, timed):
        engine = LocalEngine(config)
        state = server.start(config, engine)
        times = []
        for _ in range(3):
            state, line = server.play_round(state, config, engine)
            times.append(line.get("simulated_seconds"))
        states.append((state.model.weights.tobytes(), times))
    assert states[0][0] == states[1][0]
    assert states[0][1] == [None] * 3
    assert 0 < states[1][1][0] < states[1][1][1] < states[1][1][2]
