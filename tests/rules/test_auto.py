"""Auto: each client takes the coarsest levels with the error that what becomes of it allows."""

from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.errors import ConfigError, RuleError
from adaquantfl.quantizers import find
from adaquantfl.rules import Auto, Energies, State

RNG = np.random.default_rng(0)


def error(rule: Auto, state: State, **seen: Any) -> float:
    """The largest error that clients are told."""
    _, plan = rule.plan(state, aq.Seen(bits=0, dimension=100, **seen))
    assert plan.max_error is not None
    return plan.max_error


def after(rule: Auto, energies: Energies, times: int = 1) -> float:
    state = rule.init()
    for _ in range(times):
        state, _ = rule.judge(state, aq.Report(1.0, energies=energies))
    return error(rule, state, weights_squared=energies.weights_squared, feedback=False)


def test_the_error_follows_from_what_becomes_of_it() -> None:
    rule = Auto(error=0.6, noise=0.2, alone=0.03)
    state, late = rule.init(), {"alignment": None, "round": 99}
    assert error(rule, state) == pytest.approx(1 / 6)  # a fifth of a round late
    assert error(rule, late, gain=0.0) == 0.6
    assert error(rule, late) == 0.5, "one round late where nobody measures the gain"
    assert error(rule, late, participation=0.02) == pytest.approx(2 / 7)
    assert error(rule, state, averages=False) == 0.03
    assert error(rule, state, weights_squared=0.1, feedback=False) == pytest.approx(0.2)  # nothing known: no alignment


def test_it_brings_its_own_quantizer_and_downlink_unless_the_user_has_set_one() -> None:
    alone = Auto().plan(Auto().init(), aq.Seen(bits=0, dimension=9))[1]
    assert (alone.quantizer, alone.feedback, alone.downlink) == ("fitted", True, "late")
    given = Auto().plan(Auto().init(), aq.Seen(bits=0, dimension=9, quantizer=find("centroid")))[1]
    assert (given.quantizer, given.feedback) == ("", False)


def test_the_noise_of_aligned_clients_averages_out() -> None:
    rule = Auto(noise=0.2)
    aligned = Energies(step=1.0 + 0.02, mean=1.0, noise=0.02, weights_squared=0.1)
    assert after(rule, aligned) == pytest.approx(0.2 * 10)
    orthogonal = Energies(step=0.1, mean=1.0, noise=0.0, weights_squared=0.1)
    assert after(rule, orthogonal) == pytest.approx(0.2)
    assert after(rule, Energies(0.0, 0.0, 0.0, 0.1)) == pytest.approx(0.2)  # updates of zeros teach nothing


def test_numbers_that_are_none_are_refused() -> None:
    for settings in (
        {"error": 0.0},
        {"error": 1.0},
        {"noise": -1.0},
        {"alone": float("nan")},
        {"noise": True},
        {"error": "half"},
    ):
        with pytest.raises(RuleError):
            Auto(**settings)


def play(rounds: int = 3, clients: int = 4, spread: float = 0.3, **settings: object) -> tuple[aq.Server, list, list]:
    """Clients with a common direction and a part of their own; the facts, and each step's error."""
    size = 4_000
    common = RNG.standard_normal(size).astype(np.float32)
    server = aq.Server(np.zeros(size, dtype=np.float32), **{"rule": Auto(), "downlink": "exact", **settings})
    ends, facts, errors = [aq.Client(i) for i in range(clients)], [], []
    for _ in range(rounds):
        before, wanted = np.array(server.weights), np.zeros(size)
        for client, order in server.open(range(clients)).items():
            weights = ends[client].open(order)
            update = common + spread * RNG.standard_normal(size).astype(np.float32)
            wanted += update / clients
            server.receive(client, ends[client].reply(weights + update, loss=1.0))
        round = server.close()
        facts.append(round.facts)
        moved = round.weights - before
        errors.append(float(np.square(moved - wanted).sum() / np.square(wanted).sum()))
    return server, facts, errors


def test_without_feedback_the_noise_of_a_step_is_the_share_that_was_set() -> None:
    _, facts, errors = play(rounds=6, quantizer="centroid")
    assert max(errors) < 0.3
    assert errors[-1] > 0.12  # and not much finer: four clients average it out
    assert facts[-1]["wire_bytes_up"] < 4 * 6 * 4 * 4_000 / 20


def test_with_feedback_the_first_round_is_nearly_complete() -> None:
    _, _, errors = play(rounds=1, spread=0.0)
    assert 0.14 < errors[0] <= 1 / 6


def test_a_median_takes_updates_that_are_right_by_themselves() -> None:
    server, _, errors = play(step="median", spread=0.0)
    assert errors[0] <= Auto().alone
    assert max(errors) < 3 * Auto().alone  # later rounds bring what was left out
    assert not server.stages.averages
    assert not server.wants_loss()


def test_what_was_left_out_follows_within_the_rounds_that_the_rule_allows() -> None:
    size, rounds = 4_000, 40
    update = np.random.default_rng(6).standard_t(3, size).astype(np.float32)
    server, client = aq.Server(np.zeros(size, dtype=np.float32), rule=Auto(), downlink="exact"), aq.Client(0)
    for _ in range(rounds):
        weights = client.open(server.open([0])[0])
        server.receive(0, client.reply(weights + update, loss=1.0))
        server.close()
    missing = rounds * update - np.asarray(server.weights)
    late = float(missing @ update) / float(update @ update)  # in rounds
    assert 0.5 < late < 0.7 / (1 - 0.7)


@pytest.mark.parametrize("quantizer", ["stc", "terngrad"])
def test_a_quantizer_without_levels_is_refused(quantizer: str) -> None:
    with pytest.raises(ConfigError, match="no levels that a client could choose"):
        aq.Server(np.zeros(4, dtype=np.float32), rule=Auto(), quantizer=quantizer)


def test_an_alignment_that_falls_counts_at_once() -> None:
    rule, state, found = Auto(noise=0.2), Auto().init(), []
    for step in (1.0, 0.2, 1.0):
        energies = Energies(step=step, mean=1.0, noise=0.0, weights_squared=0.1)
        state, _ = rule.judge(state, aq.Report(1.0, energies=energies))
        found.append(state["alignment"])
    assert found == pytest.approx([1.0, 0.2, 0.6])
