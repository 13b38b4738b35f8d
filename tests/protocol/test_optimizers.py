"""Server steps with a memory: the papers' formulas, kept in the server's state, and refused settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.step import ServerStep
from adaquantfl.runs.config import load_config
from support.rounds import Federation

D = 40
UPDATES = np.random.default_rng(5).standard_normal((6, D)).astype(np.float32)
STEPS: dict[str, ServerStep] = {
    "momentum": aq.Momentum(eta=0.5, beta=0.8),
    "nesterov": aq.Nesterov(eta=0.5, beta=0.8),
    "adam": aq.Adam(eta=0.02, beta=0.7, beta2=0.9, epsilon=0.01),
    "yogi": aq.Yogi(eta=0.02, beta=0.7, beta2=0.9, epsilon=0.01),
}


def moved(step: ServerStep) -> np.ndarray:
    """What the step adds to the model, round by round."""
    state, moves = step.init(D), []
    for update in UPDATES:
        move, state = step.apply(update, state)
        assert move.dtype == np.float32
        moves.append(move)
    return np.array(moves)


def by_the_book(name: str) -> np.ndarray:
    """The same in float64, from the papers' formulas."""
    m, v, moves = np.zeros(D), np.full(D, 0.01**2), []
    for delta in UPDATES.astype(np.float64):
        if name in ("momentum", "nesterov"):
            m = 0.8 * m + delta
            moves.append(0.5 * (m if name == "momentum" else delta + 0.8 * m))
            continue
        m = 0.7 * m + 0.3 * delta
        v = 0.9 * v + 0.1 * delta**2 if name == "adam" else v - 0.1 * delta**2 * np.sign(v - delta**2)
        moves.append(0.02 * m / (np.sqrt(v) + 0.01))
    return np.array(moves)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_its_papers_formula(name: str) -> None:
    np.testing.assert_allclose(moved(STEPS[name]), by_the_book(name), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", STEPS)
def test_what_a_step_remembers_is_in_the_servers_state(name: str) -> None:
    def server() -> aq.Server:
        return aq.Server(np.zeros(D, dtype=np.float32), rule=aq.Fixed(bits=8), step=name, downlink="exact")

    whole, cut = Federation(server()), Federation(server())
    for _ in range(4):
        whole.play()
    for _ in range(2):
        cut.play()
    cut.server = aq.Server.restore(cut.server.state())
    for _ in range(2):
        cut.play()
    assert whole.server.weights.tobytes() == cut.server.weights.tobytes()
    plain = Federation(aq.Server(np.zeros(D, dtype=np.float32), rule=aq.Fixed(bits=8), downlink="exact"))
    for _ in range(4):
        plain.play()
    assert plain.server.weights.tobytes() != whole.server.weights.tobytes()


def test_a_constant_update_moves_the_model_as_the_sum_does_in_the_end() -> None:
    step, update = aq.Momentum(), np.ones(3, dtype=np.float32)
    state = step.init(3)
    for _ in range(200):
        move, state = step.apply(update, state)
    np.testing.assert_allclose(move, update, rtol=1e-4)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"step": "momentum", "step.beta": 1.0}, "beta = 1.0.*below 1"),
        ({"step": "adam", "step.beta2": -0.1}, "beta2 = -0.1.*at least 0"),
        ({"step": "yogi", "step.epsilon": 0.0}, "epsilon = 0.0.*above 0"),
        ({"step": "nesterov", "step.eta": -1.0}, "eta = -1.0.*at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(aq.ConfigError, match=words):
        load_config("demo", keys)
