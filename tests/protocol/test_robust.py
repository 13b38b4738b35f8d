"""Robust server steps: the statistics they say they are, on every downlink; clients far from the rest do not count."""

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
from adaquantfl.runs.config import Config, load_config
from support import quadratic
from support.rounds import Change, Federation, federation
from support.scripted import Scripted

D, CLIENTS = 300, 8
COHORT = Cohort((10, 20, 30, 40, 10, 20, 30, 40), least=5)
STEPS_HERE: dict[str, ServerStep] = {
    "median": aq.Median(), "trimmed-mean": aq.TrimmedMean(0.25), "krum": aq.Krum(2),
}  # fmt: skip
every_step = pytest.mark.parametrize("step", STEPS_HERE.values(), ids=STEPS_HERE)

KEEP = aq.Verdict.KEEP


def played(rounds: int = 3, change: Change | None = None, start: Any = D, **settings: Any) -> Federation:
    run = federation(start, change, COHORT, **{"rule": aq.Fixed(bits=8), **settings})
    for _ in range(rounds):
        run.play()
    return run


def by_hand(step: ServerStep, values: np.ndarray) -> np.ndarray:
    """The same in NumPy, on all values at once."""
    if isinstance(step, aq.Median):
        return np.median(values, axis=0)
    if isinstance(step, aq.TrimmedMean):
        return np.sort(values, axis=0)[2:-2].mean(axis=0)
    distances = ((values[:, None] - values[None]) ** 2).sum(axis=2)
    scores = [sum(sorted(row)[1 : len(values) - 3]) for row in distances]
    return values[np.sort(np.argsort(scores, kind="stable")[:-2])].mean(axis=0)


@every_step
@pytest.mark.parametrize(
    ("quantizer", "codec"), [("uniform", "fixed"), ("uniform", "sparse"), ("uniform", "dense"), ("rotated", "auto")]
)
def test_the_model_moves_by_the_statistic_of_the_decoded_updates(step: ServerStep, quantizer: str, codec: str) -> None:
    run = played(0, step=step, quantizer=quantizer, codec=codec)
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
        assert rows.shape == (3, here.stop - here.start)
        found[:, here] = rows
    for row, frame in zip(found, frames, strict=True):
        values = aq.decode(frame).dequantize()
        np.testing.assert_allclose(row, values / 2, rtol=1e-6)
        assert check_frame(frame, 0.5, d).decoded_norm == pytest.approx(np.linalg.norm(values.astype(np.float64)))


@every_step
def test_buffers_and_counters_are_combined_by_the_same_statistic(step: ServerStep) -> None:
    server = aq.Server(quadratic.start(), rule=aq.FullPrecision(), step=step)
    sent = []
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
    if "left_out" in closed.facts:
        kept = [number for number in range(CLIENTS) if number not in closed.facts["left_out"]]
        counters = np.mean([10 * number**2 for number in kept])
    else:
        counters = by_hand(step, np.array([[10.0 * number**2] for number in range(CLIENTS)]))[0]
    assert closed.weights["norm.num_batches_tracked"] == np.rint(counters)


@every_step
def test_the_model_is_the_same_on_every_exact_downlink_and_no_frames_are_relayed(step: ServerStep) -> None:
    runs = {name: played(4, step=step, downlink=name) for name in ("model", "exact", "late")}
    assert runs["model"].server.weights.tobytes() == runs["exact"].server.weights.tobytes()
    assert not np.array_equal(runs["late"].server.weights, runs["exact"].server.weights)
    for run in runs.values():
        frames = [run.frame(client) for client in run.replies]
        for client, order in run.server.open().items():
            assert not any(frame in Order.unpack(order).parcel for frame in frames)
            np.testing.assert_array_equal(run.clients[client].open(order), run.server.weights)


@every_step
def test_a_server_restored_in_mid_round_makes_the_same_model(step: ServerStep) -> None:
    run = played(2, step=step)
    orders, models = run.server.open(), []
    replies = {i: run.clients[i].reply(run.clients[i].open(orders[i]) + i, 1.0, 10) for i in orders}
    for half in (0, 3, 8):
        server = aq.Server.restore(run.server.state())
        for place, (client, reply) in enumerate(reversed(replies.items())):
            if place == half:
                server = aq.Server.restore(server.state())
            server.receive(client, reply)
        closed = server.close()
        models.append((closed.weights.tobytes(), closed.facts))
    assert models[0] == models[1] == models[2]


@every_step
@pytest.mark.parametrize("attack", [-10.0, 100.0, 1e4])
def test_two_hostile_clients_of_eight_do_not_move_the_model_far(step: ServerStep, attack: float) -> None:
    def hostile(round: int, client: int, reply: Reply) -> Reply:
        levels = aq.decode(reply.frame)
        changed = replace(
            levels, values=levels.values * np.int16(np.sign(attack)), scale=levels.scale * np.float32(abs(attack))
        )
        return replace(reply, frame=aq.encode(changed)) if client in (2, 5) else reply

    honest, attacked = played(5, step=step), played(5, hostile, step=step)
    plain = played(5, hostile)
    away = [float(np.linalg.norm(run.server.weights - honest.server.weights)) for run in (attacked, plain)]
    moved = float(np.linalg.norm(honest.server.weights))
    assert away[0] < moved
    assert away[1] > 2 * moved
    if step.name == "krum":
        assert [line["left_out"] for line in attacked.lines] == [[2, 5]] * 5


@every_step
@pytest.mark.parametrize("downlink", ["model", "exact", "late"])
def test_rounds_can_be_taken_back(step: ServerStep, downlink: str) -> None:
    run = played(4, step=step, downlink=downlink, rule=Scripted((KEEP, KEEP, aq.Verdict.ROLL_BACK), levels=100))
    models = [state.trajectory.model.weights.tobytes() for state in run.states]
    assert models[3] == models[1] != models[2]
    assert models[4] != models[3]
    assert "left_out" not in run.lines[2]


@every_step
def test_a_limit_that_clips_comes_first(step: ServerStep) -> None:
    run = played(1, step=step, max_update_norm=0.01, norm_action="clip")
    assert len(run.lines[0]["clipped"]) == CLIENTS
    assert float(np.linalg.norm(run.server.weights)) <= 0.01 * (1 + 1e-5)


def test_clients_count_the_same_whatever_data_they_say_they_have() -> None:
    weights = []
    for claimed in (10, 10**9):
        server = aq.Server(np.zeros(3, dtype=np.float32), rule=aq.FullPrecision(), step="trimmed-mean")
        for number, order in server.open([0, 1, 2, 3, 4]).items():
            client = aq.Client(number)
            reply = client.reply(client.open(order) + number, 1.0, claimed if number == 4 else 10)
            server.receive(number, reply)
        weights.append(server.close().weights)
    np.testing.assert_allclose(weights, np.full((2, 3), 2.0))


def test_krum_says_where_there_are_too_few_clients_and_the_round_stays_open() -> None:
    server = aq.Server(np.zeros(3, dtype=np.float32), step=aq.Krum(hostile=1))
    clients = [aq.Client(number) for number in range(5)]
    for client, order in zip(clients, server.open(range(5)).values(), strict=True):
        weights = client.open(order)
        if client.number == 4:
            server.absent(4, "no answer.")
            break
        server.receive(client.number, client.reply(weights + 1, 1.0))
    server.stages = replace(server.stages, cohort=Cohort(least=1))
    with pytest.raises(aq.EngineError, match="takes 5 updates; there are 4"):
        server.close()
    server.receive(4, clients[4].reply(weights + 9, 1.0))
    assert server.close().facts["left_out"] == [4]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: aq.TrimmedMean(0.5), "below 0.5"),
        (lambda: aq.TrimmedMean(True), "below 0.5"),
        (lambda: aq.Krum(0), "at least 1"),
        (lambda: aq.Krum(1.5), "whole number"),
        (lambda: aq.Server(np.zeros(3, dtype=np.float32), step="medain"), "median"),
        (lambda: load_config("demo", {"step": "medain"}), "median"),
        (lambda: load_config("demo", {"step": "krum"}), "takes 5 clients"),
        (lambda: load_config("demo", {"step": "trimmed-mean", "step.share": 0.7}), "below 0.5"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, words: str) -> None:
    with pytest.raises(aq.ConfigError, match=words):
        make()


def test_a_configuration_names_the_step_and_a_state_brings_it_back() -> None:
    own = {"trimmed-mean": {"step.share": 0.1}, "krum": {"step.hostile": 2}}
    steps = [
        load_config("demo", {"clients": 8, "step": name, **own.get(name, {})}).stages().step for name in STEPS.names()
    ]
    built_in = ["sum", "momentum", "nesterov", "adam", "yogi", "median", "trimmed-mean", "krum"]
    assert [step.name for step in steps[: len(built_in)]] == built_in
    assert steps[6:8] == [aq.TrimmedMean(0.1), aq.Krum(2)]
    assert Config().stages().step.is_sum
    for step in steps:
        server = aq.Server(np.zeros(3, dtype=np.float32), step=step)
        assert aq.Server.restore(server.state()).stages.step == step


def test_integers_at_the_end_of_their_type_survive_a_median() -> None:
    start = {"w": np.zeros(4, np.float32), "count": np.array([0, 0], np.int64)}
    server = aq.Server(start, rule=aq.FullPrecision(), step="median")
    for number, order in server.open([0, 1, 2]).items():
        client = aq.Client(number)
        weights = dict(client.open(order))
        weights["count"] = np.array([number, 2**63 - 1 - (number == 0)], np.int64)
        server.receive(number, client.reply(weights, 1.0))
    found = server.close().weights["count"]
    assert found[0] == 1
    assert found[1] > 2**62
