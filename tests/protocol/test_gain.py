"""Clients that train until they fit their data: what comes late must not be asked for twice."""

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol import gain
from adaquantfl.rules import CostAware

SIZE, CLIENTS = 2_000, 8


def train(
    share: float,
    rounds: int,
    rule: aq.Rule,
    noise: float = 0.0,
    away: tuple[int, ...] = (),
    idle: range = range(0),
    downlink: str = "late",
) -> tuple:
    """Each round moves every client this share of the way to its own optimum: (distance to the mean one, server)."""
    rng = np.random.default_rng(5)
    common = rng.standard_normal(SIZE)
    optima = [common + 0.3 * rng.standard_normal(SIZE) for _ in range(CLIENTS)]
    server = aq.Server(np.zeros(SIZE, dtype=np.float32), rule=rule, downlink=downlink, min_clients=1)
    ends = [aq.Client(i) for i in range(CLIENTS)]
    for number in range(rounds):
        here = [i for i in range(CLIENTS) if not (number % 3 == 1 and i in away)]
        for i, order in server.open(here).items():
            weights = ends[i].open(order)
            target = optima[i] + noise * rng.standard_normal(SIZE)
            moved = weights + (1e-8 if number in idle else share) * (target - weights)
            server.receive(i, ends[i].reply(moved.astype(np.float32), loss=1.0))
        server.close()
    best = np.mean(optima, axis=0)
    return float(np.sum((server.weights - best) ** 2) / np.sum(best**2)), server


@pytest.mark.parametrize("share", [1.0, 1.5])
def test_clients_that_fit_their_data_in_one_round_do_not_make_the_default_diverge(share: float) -> None:
    distance, _ = train(share, 60, aq.Auto())
    assert distance < 0.01  # without the measured gain: 50, and 10^7 at 1.5


def test_near_the_optimum_the_noise_is_close_to_that_of_float32() -> None:
    quantized, exact = (train(1.0, 40, rule, noise=0.3)[0] for rule in (aq.Auto(), aq.FullPrecision()))
    assert quantized < 1.25 * exact


@pytest.mark.parametrize(("share", "noise"), [(0.1, 0.0), (0.1, 0.3), (0.5, 0.3), (1.0, 0.3), (1.5, 0.0)])
def test_the_measured_gain_is_near_the_true_one(share: float, noise: float) -> None:
    _, server = train(share, 30, aq.Auto(), noise)
    found = server.stages.downlink.gain(server.current.trajectory.downlink)
    assert found == pytest.approx(share, abs=0.03 if share < 0.2 else 0.3 * share)


@pytest.mark.parametrize("share", [1.0, 1.5])
def test_where_nobody_measures_the_gain_the_delay_is_short_enough(share: float) -> None:
    assert train(share, 60, aq.Auto(), downlink="exact")[0] < 0.15


def test_rounds_without_training_are_forgotten() -> None:
    distance, server = train(1.5, 40, aq.Auto(), idle=range(15, 22))
    assert distance < 0.01
    assert server.stages.downlink.gain(server.current.trajectory.downlink) > 1.0


def test_clients_that_miss_rounds_follow_the_late_downlink() -> None:
    distance, _ = train(0.3, 40, aq.Auto(), away=(0, 3))
    assert distance < 0.01


def test_nothing_is_known_before_something_was_left_out() -> None:
    assert gain.of(gain.begin()) is None
    zeros = np.zeros(10, dtype=np.float32)
    assert gain.of({"sums": gain.sums(gain.begin(), zeros, zeros)}) is None


def test_large_models_are_measured_on_some_elements() -> None:
    size = 3 * gain.ELEMENTS + 1
    sent = gain.sent(np.zeros(size, np.float32), np.ones(size, np.float32))
    assert len(sent) <= gain.ELEMENTS
    left = np.full(size, 0.5, dtype=np.float32)
    sums = gain.sums({**gain.begin(), "sent": sent}, left, left)  # all of what was left out, and half of what was sent
    assert gain.of({"sums": sums}) == pytest.approx(1.0 - 0.5)


def test_a_round_that_is_rolled_back_leaves_the_remainder_and_the_gain_as_they_were() -> None:
    rule = CostAware(s0=1, undo=2.0)
    server = aq.Server(np.zeros(SIZE, dtype=np.float32), rule=rule, downlink="late", quantizer="uniform")
    client, rng, kept = aq.Client(0), np.random.default_rng(1), []
    for loss in (1.0, 1.0, 1.0, 50.0):
        kept.append(server.current.trajectory.downlink)
        weights = client.open(server.open([0], loss=1.0)[0])
        server.receive(0, client.reply(weights + rng.standard_normal(SIZE).astype(np.float32), loss=loss))
        facts = server.close().facts
    assert facts["undone"]
    back = server.current.trajectory.downlink
    assert (back["remainder"] == kept[2]["remainder"]).all()
    assert back["sums"] == kept[2]["sums"]
