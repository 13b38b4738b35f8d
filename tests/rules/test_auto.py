"""Auto: unbiased noise as long as training bears it, late updates where it does not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.errors import ConfigError
from adaquantfl.quantizers import find
from adaquantfl.rules import Auto, Energies, Motion, State

RNG = np.random.default_rng(0)
SEEN = aq.Seen(bits=0, dimension=100, weights_squared=0.1)
CALM = Motion(gain=0.0, repair=0.01, persistence=0.5)


def planned(state: State, rule: Auto | None = None, **seen: Any) -> aq.Plan:
    """The plan of the round after this state."""
    return (rule or Auto()).plan(state, replace(SEEN, **seen))[1]


def known(alignment: float = 0.5, round: int = 30) -> State:
    """A state after some rounds."""
    return {"alignment": alignment, "round": round, "late": False}


def after(energies: Energies) -> float | None:
    """The error after a round with these energies."""
    return planned(Auto().judge(Auto().init(), aq.Report(1.0, energies=energies))[0]).max_error


def test_the_first_rounds_have_unbiased_noise_of_a_fixed_share() -> None:
    first = planned(Auto().init())
    assert (first.quantizer, first.feedback, first.max_error, first.downlink) == ("centroid", False, 1.0, "late")


def test_updates_are_never_late_where_nobody_has_measured_what_noise_does() -> None:
    """With momentum or Adam on the server, a delay harms, and nothing is measured."""
    for motion in (None, Motion(), Motion(gain=0.0), Motion(repair=1.0), Motion(persistence=0.0)):
        assert planned(known(alignment=0.01, round=500), motion=motion).feedback is False


def test_until_its_effect_is_measured_noise_is_a_fixed_share_of_the_step() -> None:
    aligned = Energies(step=1.0 + 0.02, mean=1.0, noise=0.02, weights_squared=0.1)
    assert after(aligned) == pytest.approx(10.0)  # ten clients average it out
    orthogonal = Energies(step=0.1, mean=1.0, noise=0.0, weights_squared=0.1)
    assert after(orthogonal) == pytest.approx(1.0)
    assert after(Energies(0.0, 0.0, 0.0, 0.1)) == pytest.approx(1.0)  # updates of zeros teach nothing
    later = planned(known(round=4)).max_error
    assert later == pytest.approx(0.25 * 0.5 / 0.1)  # a quarter, after the first four rounds


def test_the_first_rounds_of_large_models_have_more_noise_where_the_step_is_the_plain_mean() -> None:
    d = 4_000_000
    assert planned(Auto().init(), dimension=d, plain=True).max_error == pytest.approx(10.0)  # sqrt(d) / 200
    assert planned(Auto().init(), dimension=10**12, plain=True).max_error == pytest.approx(32.0)
    assert planned(Auto().init(), dimension=100, plain=True).max_error == pytest.approx(1.0)
    assert planned(Auto().init(), dimension=d).max_error == pytest.approx(1.0), "momentum and Adam repeat noise"
    assert planned(known(round=4), dimension=d, plain=True).max_error == planned(known(round=4)).max_error


def test_noise_follows_what_persists_and_what_is_repaired() -> None:
    def noise(round: int = 30, **motion: float) -> float:
        plan = planned(known(round=round), feedback=False, motion=replace(CALM, **motion))
        assert plan.max_error is not None
        return plan.max_error

    assert noise() == pytest.approx(0.04 / 0.01 * (2 * 0.5 + 1 / 62) * 5)  # delay / g (2 P + S / 2k), over sum of p^2
    assert noise(repair=0.02) == pytest.approx(noise() / 2)
    assert noise(persistence=0.1) < noise() / 4, "finer once steps have little in common"
    assert noise(persistence=0.0, round=100) < noise(persistence=0.0, round=10)


def test_updates_are_late_where_training_bears_little_noise() -> None:
    sharp = Motion(gain=0.0, repair=0.5, persistence=0.05)
    late, noisy = planned(known(), motion=sharp), planned(known(), motion=CALM)
    assert (late.quantizer, late.feedback) == ("fitted", True)
    assert late.max_error == pytest.approx(1.24 / 2.24)  # 0.04 of 31 rounds
    assert (noisy.quantizer, noisy.feedback) == ("centroid", False)
    state, _ = Auto().plan(known(), replace(SEEN, motion=sharp))
    assert planned(state, motion=CALM).feedback, "what clients have kept is not thrown away"


def test_few_of_many_clients_and_clients_that_ask_again_are_late_by_fewer_rounds() -> None:
    plan = planned(known(round=99), motion=Motion(gain=0.0, repair=5.0, persistence=0.0), participation=0.1)
    assert plan.feedback
    assert plan.max_error == pytest.approx(0.4 / 1.4)
    motion = Motion(gain=1.0, repair=5.0, persistence=0.0)
    plan = planned({**known(), "late": True}, motion=motion)
    assert plan.max_error == plan.downlink_error == pytest.approx(0.05 / 1.05)


def test_settings_of_the_user_are_kept() -> None:
    sharp = Motion(gain=0.0, repair=5.0, persistence=0.0)
    assert planned(known(), motion=sharp, feedback=False).feedback is False
    assert planned(Auto().init(), feedback=True).quantizer == "fitted"
    rotated = planned(known(), motion=sharp, quantizer=find("rotated"))
    assert (rotated.quantizer, rotated.feedback) == ("", False)


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


def test_the_noise_of_a_step_is_the_share_that_was_set() -> None:
    _, facts, errors = play(rounds=6, rule=Auto(noise=0.25), feedback=False)
    assert max(errors[:4]) < 1.1
    assert max(errors[4:]) < 0.3
    assert errors[-1] > 0.12  # and not much finer: four clients average it out
    assert facts[-1]["wire_bytes_up"] < 4 * 6 * 4 * 4_000 / 20


def test_a_median_takes_updates_that_are_right_by_themselves() -> None:
    server, _, errors = play(step="median", spread=0.0)
    assert errors[0] <= Auto().alone
    assert max(errors) < 3 * Auto().alone  # later rounds bring what was left out
    assert not server.stages.averages
    assert not server.wants_loss()


def test_a_quantizer_without_levels_is_refused() -> None:
    with pytest.raises(ConfigError, match="no levels that a client could choose"):
        aq.Server(np.zeros(4, dtype=np.float32), rule=Auto(), quantizer="stc")
