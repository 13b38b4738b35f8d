"""Who takes part with which weight: seeded samples, and what a client says of its size, within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.cohort import Cohort, who_is_missing
from adaquantfl.protocol.limits import ExamplesLimit
from support import quadratic
from support.rounds import federation

SIZES = (10, 20, 30, 40, 100)
P = tuple(size / 200 for size in SIZES)
MOST = 2**32 - 1  # examples that a reply can say


def test_the_expected_weights_are_those_of_the_data() -> None:
    """Mean of 5,000 rounds; a false alarm beyond 5 standard errors has probability below 1e-5."""
    cohort, rounds = Cohort(SIZES, per_round=2), 5_000
    weights = np.zeros((rounds, 5))
    for k in range(rounds):
        for client, weight in cohort.draw(0, k).weights.items():
            weights[k, client] = weight
    error = np.abs(weights.mean(axis=0) - P)
    assert (error < 5 * weights.std(axis=0) / rounds**0.5).all()


def test_a_sample_is_fixed_by_the_seed_and_new_each_round() -> None:
    def drawn(seed: int) -> list[tuple[int, ...]]:
        return [tuple(Cohort(SIZES, per_round=2).draw(seed, k).weights) for k in range(30)]

    assert drawn(0) == drawn(0) != drawn(1)
    assert len(set(drawn(0))) > 5
    assert all(list(clients) == sorted(clients) and len(clients) == 2 for clients in drawn(0))


def test_only_the_sample_is_asked_and_moves_the_model_by_its_weights() -> None:
    run = federation(cohort=Cohort(SIZES, per_round=2), rule=aq.FullPrecision())
    for _ in range(4):
        before = run.server.weights
        assert run.play()["clients"] == len(run.replies) == 2
        moved = sum(P[one] * 5 / 2 * aq.decode_float32(run.frame(one)).astype(np.float64) for one in run.replies)
        np.testing.assert_allclose(run.server.weights, before + moved, atol=1e-6)
    with pytest.raises(aq.EngineError, match="Client 7 is not in the cohort"):
        run.server.open([7])


def test_the_loss_is_smoothed_over_rounds() -> None:
    run, expected = federation(cohort=Cohort(SIZES, per_round=2), loss_smoothing=0.8), None
    for _ in range(4):
        loss = run.play()["round_loss"]
        expected = loss if expected is None else 0.8 * expected + 0.2 * loss
        assert run.server.current.loss == pytest.approx(expected)


def test_the_noise_of_a_round_is_what_is_left_of_each_clients_in_the_sum() -> None:
    """With equal clients, 1 / sqrt(n); of a sample of m of them, 1 / sqrt(m)."""
    assert Cohort((7,) * 16).noise(range(16), {}) == pytest.approx(1 / 4)
    assert Cohort((7,) * 16).noise(range(4), {}) == pytest.approx(1 / 2)
    assert Cohort((7,) * 16, per_round=4).noise(range(4), {}) == pytest.approx(1 / 2)
    assert Cohort().noise([0, 1], {0: 30, 1: 10}) == pytest.approx(np.hypot(0.75, 0.25))
    assert Cohort().noise([0, 1, 2], {0: 30, 1: 10}) == pytest.approx(np.linalg.norm([0.5, 1 / 6, 1 / 3]))


def test_many_who_are_missing_are_named_by_their_reasons() -> None:
    text = who_is_missing({client: f"reason {client % 7}." for client in range(200)})
    assert "clients 0, 7, 14" in text
    assert ", ...: reason 0." in text
    assert text.endswith("And 2 more reasons in the history.")


@pytest.mark.parametrize("cohort", [{"per_round": 3}, {"examples": (1, 0)}, {"least": -1}])
def test_a_cohort_that_is_none_is_refused(cohort: dict[str, Any]) -> None:
    with pytest.raises(aq.ConfigError):
        Cohort(**{"examples": (1, 2), **cohort})


# ------------------------------------------------------------------------------------ what clients say of it


def closed(told: dict[int, int], **settings: Any) -> tuple[bytes, dict[str, Any]]:
    """The model after a round in which each client says that it has so many examples, and the facts."""
    server = aq.Server(quadratic.start(), rule=aq.Fixed(bits=8), **settings)
    for number, order in server.open(None if "cohort" in settings else list(told), eta=0.1).items():
        client = aq.Client(number)
        trained, loss = quadratic.train(number, client.open(order))
        server.receive(number, client.reply(trained, loss, told[number]))
    round = server.close()
    return round.model.weights.tobytes(), round.facts


@pytest.mark.parametrize("limit", [1000, "10x"])
def test_a_client_that_claims_too_much_counts_as_the_bound(limit: float | str) -> None:
    told = {0: 100, 1: 80, 2: 120}  # the median is 100
    model, facts = closed({**told, 3: MOST}, max_examples=limit)
    expected, others = closed({**told, 3: 1000})
    assert (model, facts["round_loss"]) == (expected, others["round_loss"])
    assert (facts["capped"], facts["clients"]) == ({3: MOST}, 4)
    believed, facts = closed({**told, 3: MOST})
    assert model != believed
    assert "capped" not in facts
    assert closed(told, max_examples=limit) == closed(told), "honest claims change nothing"


def test_half_of_the_clients_cannot_move_the_median() -> None:
    assert ExamplesLimit(times_median=3).capped({0: 10, 1: 12, 2: MOST, 3: MOST}) == {0: 10, 1: 12, 2: 36, 3: 36}


def test_where_sizes_are_known_claims_play_no_part() -> None:
    cohort, told = Cohort((100, 80, 120)), {0: 100, 1: 80}
    (lied, facts), (honest, _) = (closed({**told, 2: m}, cohort=cohort, max_examples="2x") for m in (MOST, 120))
    assert lied == honest
    assert "capped" not in facts
