"""Server steps: their papers' formulas, on every downlink; robust ones bound what hostile clients do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.accumulator import check_frame, tiles
from adaquantfl.codecs.frame import TILE
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.step import STEPS, ServerStep
from adaquantfl.runs.config import load_config
from support import quadratic
from support.rounds import Change, Federation, federation

D, CLIENTS = 300, 8
COHORT = Cohort((10, 20, 30, 40, 10, 20, 30, 40), least=5)
ROBUST: dict[str, ServerStep] = {"median": aq.Median(), "trimmed-mean": aq.TrimmedMean(0.25), "krum": aq.Krum(2)}
WITH_MEMORY: dict[str, ServerStep] = {
    "momentum": aq.Momentum(eta=0.5, beta=0.8),
    "nesterov": aq.Nesterov(eta=0.5, beta=0.8),
    "adam": aq.Adam(eta=0.02, beta=0.7, beta2=0.9, epsilon=0.01),
}
every_robust_step = pytest.mark.parametrize("step", ROBUST.values(), ids=ROBUST)


def played(rounds: int = 3, change: Change | None = None, start: Any = D, **settings: Any) -> Federation:
    run = federation(start, change, COHORT, **{"rule": aq.Fixed(bits=8), **settings})
    for _ in range(rounds):
        run.play()
    return run


# ------------------------------------------------------------------------------------------- with a memory


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_a_step_with_a_memory_is_its_papers_formula(name: str) -> None:
    updates, step = np.random.default_rng(5).standard_normal((6, 40)).astype(np.float32), WITH_MEMORY[name]
    state, m, v = step.init(40), np.zeros(40), np.full(40, 0.01**2)
    for update in updates:
        move, state = step.apply(update, state)
        delta = update.astype(np.float64)
        if name == "adam":
            m, v = 0.7 * m + 0.3 * delta, 0.9 * v + 0.1 * delta**2
            expected = 0.02 * m / (np.sqrt(v) + 0.01)
        else:
            m = 0.8 * m + delta
            expected = 0.5 * (m if name == "momentum" else delta + 0.8 * m)
        assert move.dtype == np.float32
        np.testing.assert_allclose(move, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_what_a_step_remembers_is_in_the_servers_state(name: str) -> None:
    whole, cut = played(4, step=name), played(2, step=name)
    cut.server = aq.Server.restore(cut.server.state())
    for _ in range(2):
        cut.play()
    assert whole.server.weights.tobytes() == cut.server.weights.tobytes() != played(4).server.weights.tobytes()


def test_a_constant_update_moves_the_model_as_the_sum_does_in_the_end() -> None:
    step, update = aq.Momentum(), np.ones(3, dtype=np.float32)
    state = step.init(3)
    for _ in range(200):
        move, state = step.apply(update, state)
    np.testing.assert_allclose(move, update, rtol=1e-4)


# -------------------------------------------------------------------------------------------------- robust


def by_hand(step: ServerStep, values: np.ndarray) -> np.ndarray:
    """The same in NumPy, on all values at once."""
    if isinstance(step, aq.Median):
        return np.median(values, axis=0)
    if isinstance(step, aq.TrimmedMean):
        return np.sort(values, axis=0)[2:-2].mean(axis=0)
    distances = ((values[:, None] - values[None]) ** 2).sum(axis=2)
    scores = [sum(sorted(row)[1 : len(values) - 3]) for row in distances]
    return values[np.sort(np.argsort(scores, kind="stable")[:-2])].mean(axis=0)


@every_robust_step
@pytest.mark.parametrize("quantizer", ["uniform", "rotated"])
def test_the_model_moves_by_the_statistic_of_the_decoded_updates(step: ServerStep, quantizer: str) -> None:
    run = played(0, step=step, quantizer=quantizer)
    before = run.server.weights
    run.play()
    frames = [run.frame(client) for client in range(CLIENTS)]
    values = np.array([aq.decode(frame).dequantize() for frame in frames], dtype=np.float64)
    np.testing.assert_allclose(run.server.weights - before, by_hand(step, values), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("quantizer", ["uniform", "lattice"])
def test_frames_are_decoded_side_by_side_tile_by_tile(quantizer: str, rng: np.random.Generator) -> None:
    d = 2 * TILE + 777
    vectors = [rng.standard_normal(d).astype(np.float32) for _ in range(3)]
    frames = [aq.compress(x, 200, key, quantizer=quantizer) for key, x in enumerate(vectors)]
    found = np.empty((3, d), dtype=np.float32)
    for here, rows in tiles([check_frame(frame, 0.5, d) for frame in frames]):
        found[:, here] = rows
    for row, frame in zip(found, frames, strict=True):
        values = aq.decode(frame).dequantize()
        np.testing.assert_allclose(row, values / 2, rtol=1e-6)
        assert check_frame(frame, 0.5, d).decoded_norm == pytest.approx(np.linalg.norm(values.astype(np.float64)))


@every_robust_step
def test_buffers_and_counters_are_combined_by_the_same_statistic(step: ServerStep) -> None:
    server, sent = aq.Server(quadratic.start(), rule=aq.FullPrecision(), step=step), []
    for number, order in server.open(range(CLIENTS)).items():
        client = aq.Client(number)
        trained, loss = quadratic.train(number, client.open(order))
        trained["norm.num_batches_tracked"] = np.array(10 * number * number)
        sent.append(trained)
        server.receive(number, client.reply(trained, loss, quadratic.examples(number)))
    closed = server.close()
    rows = np.array([np.concatenate([one[name].ravel() for name in quadratic.SHAPES]) for one in sent], np.float64)
    found = np.concatenate([closed.weights[name].ravel() for name in quadratic.SHAPES])
    np.testing.assert_allclose(found, by_hand(step, rows), rtol=1e-4, atol=1e-5)
    kept = [number for number in range(CLIENTS) if number not in closed.facts.get("left_out", [])]
    counters = np.array([[10.0 * number**2] for number in kept])
    expected = counters.mean() if len(kept) < CLIENTS else by_hand(step, counters)[0]
    assert closed.weights["norm.num_batches_tracked"] == np.rint(expected)


@every_robust_step
@pytest.mark.parametrize("downlink", ["model", "exact", "late"])
def test_clients_get_the_servers_model_and_never_the_frames(step: ServerStep, downlink: str) -> None:
    run = played(3, step=step, downlink=downlink)
    frames = [run.frame(client) for client in run.replies]
    for client, order in run.server.open().items():
        assert not any(frame in Order.unpack(order).parcel for frame in frames)
        np.testing.assert_array_equal(run.clients[client].open(order), run.server.weights)


@every_robust_step
@pytest.mark.parametrize("attack", [-10.0, 1e4])
def test_two_hostile_clients_of_eight_do_not_move_the_model_far(step: ServerStep, attack: float) -> None:
    def hostile(round: int, client: int, reply: Reply) -> Reply:
        levels = aq.decode(reply.frame)
        changed = replace(
            levels, values=levels.values * np.int16(np.sign(attack)), scale=levels.scale * np.float32(abs(attack))
        )
        return replace(reply, frame=aq.encode(changed)) if client in (2, 5) else reply

    honest, attacked, plain = played(5, step=step), played(5, hostile, step=step), played(5, hostile)
    away = [float(np.linalg.norm(run.server.weights - honest.server.weights)) for run in (attacked, plain)]
    moved = float(np.linalg.norm(honest.server.weights))
    assert away[0] < moved
    assert away[1] > 2 * moved
    if step.name == "krum":
        assert [line["left_out"] for line in attacked.lines] == [[2, 5]] * 5


@every_robust_step
def test_a_limit_that_clips_comes_first(step: ServerStep) -> None:
    run = played(1, step=step, max_update_norm=0.01, norm_action="clip")
    assert len(run.lines[0]["clipped"]) == CLIENTS
    assert float(np.linalg.norm(run.server.weights)) <= 0.01 * (1 + 1e-5)


def test_clients_count_the_same_whatever_data_they_say_they_have() -> None:
    server = aq.Server(np.zeros(3, dtype=np.float32), rule=aq.FullPrecision(), step="trimmed-mean")
    for number, order in server.open([0, 1, 2, 3, 4]).items():
        client = aq.Client(number)
        server.receive(number, client.reply(client.open(order) + number, 1.0, 10**9 if number == 4 else 10))
    np.testing.assert_allclose(server.close().weights, [2.0] * 3)


def test_krum_says_where_there_are_too_few_clients_and_the_round_stays_open() -> None:
    server = aq.Server(np.zeros(3, dtype=np.float32), step=aq.Krum(hostile=1), min_clients=1)
    clients = [aq.Client(number) for number in range(5)]
    replies = [
        client.reply(client.open(order) + (9 if client.number == 4 else 1), 1.0)
        for client, order in zip(clients, server.open(range(5)).values(), strict=True)
    ]
    for number in range(4):
        server.receive(number, replies[number])
    with pytest.raises(aq.EngineError, match="takes 5 updates; there are 4"):
        server.close()
    server.receive(4, replies[4])
    assert server.close().facts["left_out"] == [4]


def test_integers_at_the_end_of_their_type_survive_a_median() -> None:
    start = {"w": np.zeros(4, np.float32), "count": np.array([0, 0], np.int64)}
    server = aq.Server(start, rule=aq.FullPrecision(), step="median")
    for number, order in server.open([0, 1, 2]).items():
        client = aq.Client(number)
        weights = {**client.open(order), "count": np.array([number, 2**63 - 1 - (number == 0)], np.int64)}
        server.receive(number, client.reply(weights, 1.0))
    found = server.close().weights["count"]
    assert found[0] == 1
    assert found[1] > 2**62


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"step": "momentum", "step.beta": 1.0}, "beta = 1.0.*below 1"),
        ({"step": "adam", "step.beta2": -0.1}, "beta2 = -0.1.*at least 0"),
        ({"step": "adam", "step.epsilon": 0.0}, "epsilon = 0.0.*above 0"),
        ({"step": "medain"}, "median"),
        ({"step": "krum"}, "takes 5 clients"),
        ({"step": "krum", "step.hostile": 0}, "at least 1"),
        ({"step": "trimmed-mean", "step.share": 0.5}, "below 0.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(aq.ConfigError, match=words):
        load_config("demo", keys)


def test_a_configuration_names_the_step_and_a_state_brings_it_back() -> None:
    own = {"trimmed-mean": {"step.share": 0.1}, "krum": {"step.hostile": 2}}
    names = ["sum", "momentum", "nesterov", "adam", "median", "trimmed-mean", "krum"]
    assert list(STEPS.names())[: len(names)] == names
    for name in names:
        step = load_config("demo", {"clients": 8, "step": name, **own.get(name, {})}).stages().step
        assert step.name == name
        assert aq.Server.restore(aq.Server(np.zeros(3, np.float32), step=step).state()).stages.step == step


def test_a_step_is_plain_where_it_is_known_to_be_the_mean_and_nobody_limits_its_noise() -> None:
    def plain(**settings: Any) -> bool:
        return aq.Server(np.zeros(3, np.float32), **settings).stages.plain

    assert plain()
    assert plain(max_update_norm="10x")
    assert not any([plain(step="momentum"), plain(step="median"), plain(averages=True), plain(max_update_norm=2.0)])
