"""Differential privacy: the noise is what the accountant is told, and no round is played beyond the budget."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chi2
from scipy.stats import skellam as skellam_law

from adaquantfl.errors import EngineError
from adaquantfl.private import BudgetSpent, Central, Client, Distributed, Server
from adaquantfl.private import noise as noises
from adaquantfl.private.accounting import ORDERS, epsilon, gaussian_round, skellam_round
from adaquantfl.private.modular import Projection, rounded
from support.private_rounds import drift, play_round

dp = pytest.importorskip("dp_accounting")
D = 4_000


@pytest.fixture(autouse=True)
def _same_noise(monkeypatch):
    """The keys of the noise are those of a fixed seed, so that no test of chance fails by chance."""
    rng = np.random.default_rng(11)
    monkeypatch.setattr("adaquantfl.private.noise.os.urandom", rng.bytes)


def test_gaussian_epsilons_are_those_of_the_accountants_own_examples():
    """dp-accounting's tests: noise 1 with delta 1e-5 is between 4.5 and 5; and its accountant, round by round."""
    for multiplier, rounds, delta in ((1.0, 1, 1e-5), (0.7, 10, 1e-6), (4.0, 1000, 1e-5)):
        accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(dp.GaussianDpEvent(multiplier), rounds)
        ours = epsilon(rounds * gaussian_round(multiplier), delta)
        assert ours == pytest.approx(accountant.get_epsilon(delta), rel=1e-9)
    assert 4.5 < epsilon(gaussian_round(1.0), 1e-5) < 5.0


def test_our_orders_lose_little_against_the_accountants_and_its_exact_answer():
    for multiplier, rounds in ((1.0, 1), (2.0, 30), (8.0, 300)):
        event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(multiplier), rounds)
        usual = dp.rdp.RdpAccountant().compose(event).get_epsilon(1e-5)
        exact = dp.pld.PLDAccountant().compose(event).get_epsilon(1e-5)
        ours = epsilon(rounds * gaussian_round(multiplier), 1e-5)
        assert exact <= ours <= 1.03 * usual


@pytest.mark.parametrize(("variance", "shift"), [(4.0, 1), (25.0, 3), (400.0, 20)])
def test_skellams_bound_is_above_the_divergence_itself(variance, shift):
    """The divergence of a shifted Skellam number, summed up; the bound is for any vector with this norm."""
    reach = int(40 * math.sqrt(variance)) + 60
    places = np.arange(-reach, reach + 1)
    logs = skellam_law.logpmf(places, variance / 2, variance / 2)
    moved = skellam_law.logpmf(places - shift, variance / 2, variance / 2)
    bound = dict(zip(ORDERS, skellam_round(variance, float(shift), 1), strict=True))
    for order in (2, 3, 5, 8):
        usable = np.isfinite(logs) & np.isfinite(moved)
        exact = np.log(np.exp(order * moved[usable] - (order - 1) * logs[usable]).sum()) / (order - 1)
        assert exact <= bound[order] * (1 + 1e-9)
        assert exact >= 0.5 * bound[order]  # and it is no empty one


@pytest.mark.parametrize("variance", [0.3, 7.0, 900.0])
def test_noise_has_skellams_law(variance):
    """Chi-square over the places that are expected 20 times or more; 1 false alarm in 10^6."""
    drawn = noises.skellam(50_000, variance)
    places = np.arange(drawn.min() - 1, drawn.max() + 2)
    expected = 50_000 * skellam_law.pmf(places, variance / 2, variance / 2)
    counts = np.array([np.count_nonzero(drawn == place) for place in places])
    common = expected >= 20
    squares = np.square(counts - expected)[common] / expected[common]
    assert chi2.sf(squares.sum(), common.sum() - 1) > 1e-6
    assert drawn.mean() == pytest.approx(0, abs=5 * math.sqrt(variance / 50_000))


def test_parts_of_the_noise_add_up_to_skellam_noise_and_gaussian_noise_is_gaussian():
    total = sum(noises.skellam(20_000, 5.0) for _ in range(20))
    assert total.var() == pytest.approx(100, rel=0.05)
    drawn = noises.gaussian(50_000, 3.0)
    assert drawn.std() == pytest.approx(3.0, rel=0.02)
    assert np.mean(np.abs(drawn) > 6) == pytest.approx(0.0455, abs=0.005)


def start(mode, n=20, **settings):
    weights = np.random.default_rng(5).normal(0, 0.05, D).astype(np.float32)
    return Server(weights, mode, seed=1, **settings), {i: Client(i) for i in range(n)}


@pytest.mark.parametrize("length", [0.01, 1.0, 1000.0])
def test_no_update_is_longer_than_what_the_accountant_is_told(length):
    server, clients = start(Distributed(bits=4.0, clip=0.5, epsilon=1e6))
    direction = np.random.default_rng(2).normal(size=D)
    update = (length * direction / np.linalg.norm(direction)).astype(np.float32)
    clients[0].open(server.open(range(20))[0])
    plan = clients[0].order
    projection = Projection(plan, [D])
    numbers, clipped = rounded(projection.of(update), plan, projection.steps, key=4)
    assert np.linalg.norm(numbers) <= plan.longest
    assert clipped == (length > 0.5)


@pytest.mark.parametrize("mode", [Central, Distributed])
def test_a_noisy_round_is_the_mean_and_the_noise_that_is_paid_for(mode):
    settings = {"bits": 32.0, "noise": 0.7, "clip": 1.0, "epsilon": 1e6}
    server, clients = start(mode(**settings))
    w = np.array(server.weights)
    after = play_round(server, clients, drift(D, spread=0.01, mean=0.01))
    mean = np.mean([drift(D, spread=0.01, mean=0.01)(i, w)[0] - w for i in range(20)], axis=0)
    error = (after.weights - w - mean).astype(np.float64)
    # Noise of z times the clip's length in whole numbers, whose norm may be sqrt(5 / 4) times as long, on 20 clients.
    parts = 20 / (14 - 2) if mode is Distributed else 1.0  # more where nobody drops out or colludes
    wanted = 0.7 * math.sqrt(1.25 * parts) / 20
    assert error.std() == pytest.approx(wanted, rel=0.1)
    assert after.facts["round_loss"] is None
    assert after.facts["s"] is None
    assert after.facts["epsilon"] == pytest.approx(epsilon(gaussian_round(0.7), 1e-5), rel=0.02)


def test_epsilon_grows_with_the_rounds_and_survives_a_checkpoint():
    mode = Distributed(noise=3.0, epsilon=100.0)
    server, clients = start(mode)
    found = [play_round(server, clients, drift(D)).facts["epsilon"] for _ in range(3)]
    assert all(a < b for a, b in pairwise(found))
    assert Server.resume(server.state(), mode, server.stages).epsilon == found[-1]


@pytest.mark.parametrize("mode", [Central, Distributed])
def test_no_round_is_played_beyond_the_budget(mode):
    server, clients = start(mode(noise=1.0, epsilon=8.0))
    spent = [play_round(server, clients, drift(D)).facts["epsilon"] for _ in range(2)]
    assert spent[1] <= 8.0
    for _ in range(2):  # also after a failure
        with pytest.raises(BudgetSpent, match=r"private\.epsilon = 8"):
            server.open(range(20))
    assert server.epsilon == spent[1]


def test_privacy_that_was_spent_stays_spent_when_a_round_is_taken_back():
    server, clients = start(Distributed(noise=2.0))
    before = server.current
    play_round(server, clients, drift(D))
    spent = server.epsilon
    server.return_to(before)
    assert server.epsilon == spent > 0


def test_noisy_clients_tell_nothing_but_their_numbers():
    server, clients = start(Distributed())
    orders = server.open(range(20))
    clients[0].open(orders[0])
    clients[0].reply(np.zeros(D, np.float32), loss=3.0)
    assert len(clients[0].state()["round"]["facts"]) == 0


def test_a_noisy_sum_of_too_few_is_not_opened():
    server, clients = start(Distributed(noise=2.0))
    with pytest.raises(EngineError, match="needs 14"):
        play_round(server, clients, drift(D), gone={2: range(7)})
    assert server.epsilon == 0
