"""Partial participation: seeded samples with unbiased weights, and only those who are drawn are asked."""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.cohort import Cohort, who_is_missing
from support.rounds import federation

SIZES = (10, 20, 30, 40, 100)
P = tuple(size / 200 for size in SIZES)


@pytest.mark.parametrize("sampling", ["uniform", "size"])
def test_the_expected_weights_are_those_of_the_data(sampling: str) -> None:
    """Mean of 5,000 rounds; a false alarm beyond 5 standard errors has probability below 1e-5."""
    cohort, rounds = Cohort(SIZES, per_round=2, sampling=sampling), 5_000
    weights = np.zeros((rounds, 5))
    for k in range(rounds):
        for client, weight in cohort.draw(0, k).weights.items():
            weights[k, client] = weight
    error = np.abs(weights.mean(axis=0) - P)
    assert (error < 5 * weights.std(axis=0) / rounds**0.5).all()


def drawn(seed: int, round: int) -> tuple[int, ...]:
    return tuple(Cohort(SIZES, per_round=2).draw(seed, round).weights)


def test_a_sample_is_fixed_by_the_seed_and_new_each_round() -> None:
    one = [drawn(0, k) for k in range(30)]
    assert one == [drawn(0, k) for k in range(30)]
    assert len(set(one)) > 5
    assert one != [drawn(1, k) for k in range(30)]
    assert all(list(clients) == sorted(clients) and len(clients) == 2 for clients in one)


def test_everybody_is_the_weighted_mean_of_the_paper() -> None:
    shares = Cohort(SIZES).draw(0, 3)
    assert shares.weights == dict(enumerate(P))
    assert shares.complete


def test_only_the_sample_is_asked_and_counted() -> None:
    run = federation(cohort=Cohort(SIZES, per_round=2), downlink="exact")
    asked = set()
    for k in range(6):
        assert run.play()["clients"] == 2
        assert set(run.replies) == set(drawn(0, k))
        asked |= set(run.replies)
    assert set(run.server.current.log.holds) == asked


def test_the_model_moves_by_the_samples_weighted_updates() -> None:
    run = federation(cohort=Cohort(SIZES, per_round=2), rule=aq.FullPrecision())
    run.play()
    expected = sum(
        P[client] * 5 / 2 * aq.decode_float32(run.frame(client)).astype(np.float64)
        for client, reply in run.replies.items()
    )
    np.testing.assert_allclose(run.server.weights, expected, atol=1e-6)


def test_the_loss_is_smoothed_over_rounds() -> None:
    run = federation(cohort=Cohort(SIZES, per_round=2), loss_smoothing=0.8)
    expected = None
    for _ in range(4):
        loss = run.play()["round_loss"]
        expected = loss if expected is None else 0.8 * expected + 0.2 * loss
        assert run.server.current.loss == pytest.approx(expected)


def test_the_noise_of_a_round_is_what_is_left_of_each_clients_in_the_sum() -> None:
    """With equal clients, 1 / sqrt(n); of a sample of m of them, 1 / sqrt(m)."""
    assert Cohort((7,) * 16).noise(range(16), {}) == pytest.approx(1 / 4)
    assert Cohort((7,) * 16).noise(range(4), {}) == pytest.approx(1 / 2)
    assert Cohort((7,) * 16, per_round=4).noise(range(4), {}) == pytest.approx(1 / 2)
    assert Cohort().noise(range(4), {}) == pytest.approx(1 / 2)
    assert Cohort().noise([0, 1], {0: 30, 1: 10}) == pytest.approx(np.hypot(0.75, 0.25))
    assert Cohort().noise([0, 1, 2], {0: 30, 1: 10}) == pytest.approx(np.linalg.norm([0.5, 1 / 6, 1 / 3]))


def test_many_who_are_missing_are_named_by_their_reasons() -> None:
    text = who_is_missing({client: f"reason {client % 7}." for client in range(200)})
    assert "clients 0, 7, 14" in text
    assert ", ...: reason 0." in text
    assert text.endswith("And 2 more reasons in the history.")
