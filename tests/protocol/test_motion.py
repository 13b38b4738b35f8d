"""What the downlink sees of training: what is asked for twice, what noise a round repairs, and what persists."""

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol import motion
from adaquantfl.protocol.downlink import Late
from adaquantfl.rules import Energies

SIZE, CLIENTS = 2_000, 8


def train(
    share: float,
    rounds: int,
    rule: aq.Rule,
    noise: float = 0.0,
    away: tuple[int, ...] = (),
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
            moved = weights + share * (target - weights)
            server.receive(i, ends[i].reply(moved.astype(np.float32), loss=1.0))
        server.close()
    best = np.mean(optima, axis=0)
    return float(np.sum((server.weights - best) ** 2) / np.sum(best**2)), server


def measured(server: aq.Server) -> aq.rules.Motion:
    found = server.stages.downlink.motion(server.current.trajectory.downlink)
    assert found is not None
    return found


@pytest.mark.parametrize("share", [1.0, 1.5])
def test_clients_that_fit_their_data_in_one_round_do_not_make_the_default_diverge(share: float) -> None:
    distance, _ = train(share, 40, aq.Auto())
    assert distance < 0.01  # without the measured gain: 50, and 10^7 at 1.5


def test_near_the_optimum_the_noise_is_close_to_that_of_float32() -> None:
    quantized, exact = (train(1.0, 40, rule, noise=0.3)[0] for rule in (aq.Auto(), aq.FullPrecision()))
    assert quantized < 1.25 * exact


@pytest.mark.parametrize(("share", "noise"), [(0.1, 0.3), (0.5, 0.3), (1.5, 0.0)])
def test_the_measured_gain_is_near_the_true_one(share: float, noise: float) -> None:
    _, server = train(share, 30, aq.Auto(), noise)
    found = measured(server).gain
    assert 0.7 * share - 0.02 < found < 1.6 * share + 0.02  # too large a figure makes levels finer


def test_where_nobody_measures_the_gain_the_delay_is_short_enough() -> None:
    assert train(1.5, 30, aq.Auto(), downlink="exact")[0] < 0.15


def test_clients_that_miss_rounds_follow_the_late_downlink() -> None:
    distance, _ = train(0.3, 40, aq.Auto(), away=(0, 3))
    assert distance < 0.01


def test_nothing_is_known_before_something_was_left_out() -> None:
    zeros = np.zeros(10, dtype=np.float32)
    assert motion.of(motion.begin()) == motion.of(motion.after(motion.begin(), zeros, zeros, None)) == aq.rules.Motion()


def test_a_state_that_contradicts_itself_measures_nothing() -> None:
    assert motion.of({**motion.begin(), "persistence": [1.0, 2.0], "steps": 0}).persistence == 0.0


def test_large_models_are_measured_on_some_elements() -> None:
    size = 3 * motion.ELEMENTS + 1
    sent = motion.sent(np.zeros(size, np.float32), np.ones(size, np.float32))
    assert len(sent) <= motion.ELEMENTS
    left = np.full(size, 0.5, dtype=np.float32)
    after = motion.after({**motion.begin(), "sent": sent}, left, left, None)
    assert motion.of(after).gain == pytest.approx(1.0 - 0.5)  # all of what was left out, and half of what was sent


def rounds_of(share: float, persistent: float, rounds: int = 60) -> aq.rules.Motion:
    """Steps with a common part and noise of their own, which also undo a share of what was left out at random."""
    rng, size = np.random.default_rng(2), 20_000
    common, state = rng.standard_normal(size), motion.begin()
    left = np.zeros(size, dtype=np.float32)
    for _ in range(rounds):
        own = rng.standard_normal(size)
        update = np.sqrt(persistent) * common + np.sqrt(1 - persistent) * own + share * left
        energy = float(np.sum(np.square(update)))
        energies = Energies(step=energy, mean=energy, noise=0.0, weights_squared=1.0)
        state = motion.after(state, update.astype(np.float32), left, energies)
        left, state["random"] = rng.standard_normal(size).astype(np.float32), True
    return motion.of(state)


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_the_repair_is_the_share_of_noise_that_a_round_undoes_and_a_standard_error(share: float) -> None:
    # A figure's deviation is 1 / sqrt(20,000) = 0.007, and about 40 figures count: 4 deviations are 0.005.
    assert rounds_of(share, 0.3).repair == pytest.approx(share + 0.0012, abs=0.005)


@pytest.mark.parametrize("persistent", [0.0, 0.3, 0.9])
def test_the_persistence_is_the_common_part_of_steps(persistent: float) -> None:
    assert rounds_of(0.0, persistent).persistence == pytest.approx(persistent, abs=0.03)


def test_the_uplinks_noise_does_not_hide_what_persists() -> None:
    """Clients whose updates have a common part of 0.9, sent with noise of ten times their energy."""
    rng = np.random.default_rng(4)
    size, clients = 20_000, 10
    common = rng.standard_normal(size).astype(np.float32)
    rule = aq.Auto(noise=10.0)
    server = aq.Server(np.zeros(size, dtype=np.float32), rule=rule, feedback=False, downlink=Late(private=True))
    ends = [aq.Client(i) for i in range(clients)]
    for _ in range(12):
        for i, order in server.open(range(clients)).items():
            update = common + 0.33 * rng.standard_normal(size).astype(np.float32)
            server.receive(i, ends[i].reply(ends[i].open(order) + update, loss=1.0))
        server.close()
    assert measured(server).persistence == pytest.approx(1.0, abs=0.15)


def test_a_step_that_is_not_the_clients_mean_is_not_taken_for_it() -> None:
    update = np.ones(100, dtype=np.float32)
    state = {**motion.begin(), "random": True}
    for _ in range(5):
        state = motion.after(state, update, update, Energies(step=50.0, mean=60.0, noise=0.0, weights_squared=0.5))
    assert motion.of(state).repair is None
    assert motion.of(state).persistence is None


def test_the_mean_is_known_for_one_whoever_was_drawn_and_clipped() -> None:
    """Two of three clients of unequal sizes: the weights of a round do not add up to 1."""
    cohort, clip = aq.Cohort((100, 20, 5), per_round=2), {"max_update_norm": "1x", "norm_action": "clip"}
    server = aq.Server(np.zeros(SIZE, dtype=np.float32), cohort=cohort, downlink=Late(private=True), **clip)
    ends, rng = [aq.Client(i) for i in range(3)], np.random.default_rng(3)
    for _ in range(6):
        for i, order in server.open().items():
            update = (1 + i) * (1 + rng.standard_normal(SIZE))
            server.receive(i, ends[i].reply(ends[i].open(order) + update.astype(np.float32), loss=1.0))
        server.close()
    assert measured(server).measured
