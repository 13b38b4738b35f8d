"""The downlink: from wherever it stands, a client comes to the server's very model, or says that it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.frame import read_frame
from adaquantfl.protocol import parcels
from adaquantfl.protocol.arrays import Layout, Model
from adaquantfl.protocol.bfloat16 import of_bits
from adaquantfl.protocol.downlink import Exact, Late
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.parcels import Held, Log, Relay, add_up, digest_of, open_parcel, whole_size
from adaquantfl.protocol.step import Sum
from support.rounds import federation, reply_of

D = 3000


def layout(buffers: int) -> Layout:
    arrays = {"weight": np.zeros(D, np.float32), "bn.running_mean": np.zeros(buffers, np.float32)}
    return Layout.of(arrays if buffers else {"weight": arrays["weight"]})


def some_model(seed: int, buffers: int = 0) -> Model:
    rng = np.random.default_rng(seed)
    return Model(rng.normal(0, 0.1, D).astype(np.float32), rng.normal(0, 1, buffers).astype(np.float32))


def history(rounds: int, s: int = 1, clients: int = 3, buffers: int = 0) -> tuple[list[Model], list[Log]]:
    """Models of a few rounds of random frames, and the log after each."""
    rng = np.random.default_rng(1)
    models = [some_model(0, buffers)]
    logs = [Log(0, digest_of(models[0]))]
    for k in range(rounds):
        x = rng.normal(0, 0.01, (clients, D)).astype(np.float32)
        frames = [read_frame(aq.compress(x[i], s, key=10 * k + i)) for i in range(clients)]
        relay = Relay([(frame, 1 / 3) for frame in frames], 1.0 if k % 2 else 1.5)
        after = Model(add_up(models[-1].weights, relay), some_model(k + 5, buffers).buffers)
        logs.append(logs[-1].after_round(models[-1], after, relay))
        models.append(after)
    return models, logs


def held(models: list[Model], round: int, buffers: int = 0) -> Held:
    return Held(round, models[round], digest_of(models[round]), layout(buffers))


def same(a: Model, b: Model) -> bool:
    return a.weights.tobytes() == b.weights.tobytes() and a.buffers.tobytes() == b.buffers.tobytes()


@pytest.mark.parametrize(("buffers", "missed"), [(0, 0), (7, 1), (7, 5)])
def test_who_missed_rounds_gets_what_it_missed(buffers: int, missed: int) -> None:
    models, logs = history(5, buffers=buffers)
    parcel = logs[5].parcel(5 - missed, models[5])
    assert logs[5].leads_from(5 - missed)
    assert len(parcel) < whole_size(models[5])
    opened = open_parcel(parcel, held(models, 5 - missed, buffers), None)
    assert same(opened.model, models[5])
    assert (opened.round, opened.digest) == (5, digest_of(models[5]))


def test_who_has_nothing_gets_the_model() -> None:
    models, logs = history(2, buffers=7)
    parcel = logs[2].parcel(None, models[2])
    assert len(parcel) > whole_size(models[2])
    assert same(open_parcel(parcel, None, layout(7)).model, models[2])
    with pytest.raises(aq.ModelNeeded, match="layout"):
        open_parcel(parcel, None, None)


def test_steps_larger_than_the_model_are_forgotten() -> None:
    models, logs = history(40, s=255)
    assert 0 < len(logs[40].steps) < 40
    assert sum(map(len, logs[40].steps)) < whole_size(models[40])
    assert not logs[40].leads_from(0)
    assert same(open_parcel(logs[40].parcel(0, models[40]), None, layout(0)).model, models[40])


@pytest.mark.parametrize("start", [2, 3])  # 3: the parcel only names the model
def test_a_client_that_holds_nothing_an_older_round_or_another_model_says_so(start: int) -> None:
    models, logs = history(3)
    parcel = logs[3].parcel(start, models[3])
    for before in (None, held(models, 1)):
        with pytest.raises(aq.ModelNeeded, match=f"starts from the model of round {start}"):
            open_parcel(parcel, before, None)
    with pytest.raises(aq.ModelNeeded, match="digest"):
        open_parcel(parcel, replace(held(models, 1), round=start), None)


def test_a_private_downlink_never_shows_a_client_the_frame_of_another() -> None:
    shown, hidden = (federation(D, rule=aq.Fixed(bits=1), downlink=Exact(private=private)) for private in (False, True))
    seen = {False: 0, True: 0}
    for _ in range(4):
        for run in (shown, hidden):
            bodies = [read_frame(run.frame(client)).body.tobytes() for client in run.replies]
            orders = [run.server.order(client, evaluate=True) for client in range(3)]
            seen[run is hidden] += sum(body in order for body in bodies for order in orders)
            line = run.play()
    assert seen[False] > 0, "the test would notice"
    assert seen[True] == 0
    assert hidden.server.weights.tobytes() == shown.server.weights.tobytes()
    assert line["wire_bytes_down"] < 4 * 3 * whole_size(hidden.server.model), "some rounds sent the difference"
    again = aq.Server.restore(hidden.server.state())
    assert again.stages.downlink == Exact(private=True)


@pytest.mark.parametrize("way", ["model", "exact", "late"])
def test_who_was_away_for_some_rounds_trains_from_the_same_model(way: str) -> None:
    weights = {"weight": np.zeros(D, np.float32), "bn.running_var": np.ones(9, np.float32)}
    run = federation(weights, downlink=way, cohort=None)
    run.play()
    for asked in ([0, 1], [1], [1, 2]):
        run.play(asked)
    for client, order in run.server.open([0, 1, 2]).items():
        opened = run.clients[client].open(order)
        for name, array in run.server.weights.items():
            assert opened[name].tobytes() == array.tobytes()
            assert opened[name].flags.writeable
    sizes = [len(Order.unpack(run.server.order(client, evaluate=True)).parcel) for client in range(3)]
    assert (sizes[0] > sizes[2]) == (way != "model")  # client 2 has missed nothing, client 0 two rounds


def test_the_lossy_downlink_owes_what_it_did_not_send() -> None:
    """v_k + remainder is the model that lossless rounds from the same v's would have: nothing is lost for good."""
    run, owed = federation(D, downlink=Late(private=True)), np.zeros(D)
    for _ in range(4):
        before = run.server.current
        line = run.play()
        exact = federation(D, downlink="model")
        exact.server.return_to(before)
        exact.play()
        owed += exact.server.weights.astype(np.float64) - before.trajectory.model.weights
    remainder = of_bits(run.server.current.trajectory.downlink["remainder"])
    np.testing.assert_allclose(run.server.weights + remainder, owed, atol=0.01 * np.abs(remainder).max())
    assert 0 < np.linalg.norm(remainder) < np.linalg.norm(run.server.weights)
    assert line["wire_bytes_down"] < 4 * 3 * whole_size(run.server.model) / 2


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda made: None, "returned None; expected a Published"),
        (lambda made: replace(made, model=replace(made.model, weights=made.model.weights[:3])), "of shapes"),
        (lambda made: replace(made, model=replace(made.model, weights=made.model.weights * np.nan)), "NaN or infinity"),
        (lambda made: 1 / 0, "publish raised ZeroDivisionError"),
    ],
)
def test_a_downlink_of_the_users_own_that_returns_something_else_is_named(returned: Any, words: str) -> None:
    class Mine(Exact):
        name = "mine"

        def publish(self, *given: Any) -> Any:
            return returned(super().publish(*given))

    server, end = aq.Server(np.zeros(9, np.float32), downlink=Mine()), aq.Client(0)
    server.receive(0, end.reply(end.open(server.open([0])[0]) + 1, loss=1.0))
    with pytest.raises(aq.ConfigError, match=rf"publish \(test_downlink.py.*{words}|{words}.*test_downlink.py"):
        server.close()
    np.testing.assert_array_equal(server.weights, np.zeros(9))


def test_a_fresh_model_takes_a_sixth_and_training_starts_from_what_was_sent() -> None:
    rng = np.random.default_rng(0)
    weights = {"weight": rng.uniform(-0.1, 0.1, (D, 4)).astype(np.float32), "ones": np.ones(50, np.float32)}
    weights["bn.running_var"] = rng.random(7).astype(np.float32)
    server, plain = aq.Server(weights, fresh=True), aq.Server(weights)
    first, second = aq.Client(0), aq.Client(1)
    order = server.open([0])[0]
    assert len(order) < len(plain.open([0])[0]) / 5
    got = first.open(order)
    assert all(np.array_equal(got[name], server.weights[name]) for name in weights)
    assert all(np.array_equal(got[name], weights[name]) for name in ("ones", "bn.running_var"))
    error = np.sum(np.square(got["weight"] - weights["weight"])) / np.sum(np.square(weights["weight"]))
    assert 0 < error < 2e-3
    server.receive(0, first.reply({**got, "weight": got["weight"] + 0.01}, loss=1.0))
    server.close()
    server = aq.Server.restore(server.state(), server.stages)
    later = server.open([0, 1])[1]
    assert len(later) < whole_size(server.model) / 3, "who comes later gets the rounded model and the steps since"
    assert np.array_equal(second.open(later)["weight"], server.weights["weight"])


def play_constant(server: aq.Server, rounds: int, wanted: np.ndarray, clients: int = 3) -> list[dict]:
    ends, facts = [aq.Client(i) for i in range(clients)], []
    for _ in range(rounds):
        for client, order in server.open(range(clients)).items():
            weights = ends[client].open(order)
            assert (weights == server.weights).all()  # the model that was sent is the model
            server.receive(client, ends[client].reply(weights + wanted, loss=1.0))
        facts.append(server.close().facts)
    return facts


def test_frames_of_clients_are_passed_on_once_noise_is_measured_and_not_in_every_round() -> None:
    """The server measures training by noise that it knows: in rounds 2, 4, 8 and so on it sends a frame of its own."""
    rng = np.random.default_rng(3)
    server, ends, own_frames = aq.Server(np.zeros(D, dtype=np.float32)), [aq.Client(i) for i in range(2)], set()
    common = rng.standard_normal(D).astype(np.float32)
    for round in range(1, 19):
        for client, order in server.open(range(2)).items():
            weights = ends[client].open(order)
            own = rng.standard_normal(D).astype(np.float32)
            server.receive(client, ends[client].reply(weights + 0.01 * (common + own), loss=1.0))
        server.close()
        if server.current.trajectory.downlink["random"]:
            own_frames.add(round)
    assert own_frames >= {1, 2, 3, 4, 8, 16}
    assert len(own_frames) < 12, "in the others the clients' frames are smaller"


def test_the_noise_is_smaller_where_momentum_repeats_it() -> None:
    shares, wanted = {}, np.random.default_rng(3).standard_normal(D).astype(np.float32)
    for step in ("sum", "momentum"):
        server = aq.Server(np.zeros(D, dtype=np.float32), step=step, downlink=Late(private=True))
        play_constant(server, 3, wanted)
        downlink = server.current.trajectory.downlink
        left, sent = of_bits(downlink["remainder"]), downlink["sent"]
        shares[step] = np.sum(np.square(left)) / np.sum(np.square(sent))
    assert shares["momentum"] < 0.4 * shares["sum"]


class Views(Sum):
    """Keeps a view of what it returns, and returns a view."""

    name = "views"

    def init(self, dimension: int) -> dict[str, Any]:
        return {"view": np.zeros(4, dtype=np.float32), "copy": np.zeros(4, dtype=np.float32)}

    def apply(self, update: Any, state: dict[str, Any]) -> Any:
        whole = np.stack([update, update])
        return whole[0], {"view": whole[0, :4], "copy": whole[0, :4].copy()}


def test_a_step_may_keep_and_return_views_although_the_downlink_takes_the_memory() -> None:
    server = aq.Server(np.zeros(D, dtype=np.float32), step=Views(), downlink=Late(private=True))
    play_constant(server, 3, np.ones(D, dtype=np.float32))
    kept = server.current.trajectory.step
    np.testing.assert_array_equal(kept["view"], kept["copy"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remainder", np.zeros(D, np.float32)), ("remainder", np.zeros(D - 1, np.uint16)),
        ("sent", np.zeros(7, np.float32)), ("direction", np.zeros(D, np.float64)),
    ],
)  # fmt: skip
def test_a_restored_downlink_is_checked_before_it_is_used(name: str, value: Any) -> None:
    server = aq.Server(np.zeros(D, dtype=np.float32))
    play_constant(server, 3, np.ones(D, dtype=np.float32))
    tree = server.state()
    assert aq.Server.restore(tree).digest == server.digest
    tree["trajectory"]["downlink"] = {**tree["trajectory"]["downlink"], name: value}
    with pytest.raises(aq.CheckpointError, match="not the state of a server"):
        aq.Server.restore(tree)


@pytest.mark.parametrize("error", [0.0, 1.0, float("nan"), True, "half"])
def test_an_error_that_is_none_is_refused(error: Any) -> None:
    with pytest.raises(aq.ConfigError, match="left for later"):
        Late(error)


# ------------------------------------------------------- frames leave out what their receiver knows


def test_a_relayed_frame_of_another_dimension_is_refused() -> None:
    model = Model(np.zeros(D, np.float32), np.empty(0, np.float32))
    held = open_parcel(Log(0, digest_of(model)).parcel(None, model), None, Layout.of(model.weights))
    frames = [(read_frame(aq.compress(np.ones(2 * D), 1, k)), 1.0) for k in range(2)]
    step = parcels._frames_step(Relay(frames), parcels._PART.pack(0.0, 0))
    parcel = replace(Log(1, bytes(16)), steps=(step,)).parcel(0, model)
    with pytest.raises(aq.FrameError, match="dimension 6,000, expected 3,000"):
        open_parcel(parcel, held, None)


@pytest.mark.parametrize("quantizer", ["uniform", "centroid"])
def test_a_reply_has_a_short_frame_and_the_server_takes_whole_ones_too(quantizer: str) -> None:
    runs = [federation(D, rule=aq.Fixed(bits=1), quantizer=quantizer) for _ in range(2)]
    runs[1].change = lambda round, client, reply: reply  # read by the test, and packed with its whole frame
    short, whole = (run.play() for run in runs)
    assert runs[0].server.weights.tobytes() == runs[1].server.weights.tobytes()
    assert short["wire_bytes_up"] <= whole["wire_bytes_up"] - 3 * 30
    assert short["payload_bytes_up"] == whole["payload_bytes_up"], "the frames without their framing"
    assert Reply.unpack(runs[0].replies[0]).frame[0] < 8
    assert Reply.unpack(runs[1].replies[0]).frame.startswith(b"AQFL")
    assert reply_of(runs[0].clients[0], runs[0].replies[0]).frame == runs[1].frame(0)


def test_a_short_frame_that_cannot_be_read_is_refused_and_the_client_may_answer_again() -> None:
    run = federation(D, quantizer="centroid")
    orders = run.server.open(range(3))
    replies = [run.clients[c].reply(run.clients[c].open(order) + 1, loss=1.0) for c, order in orders.items()]
    honest = Reply.unpack(replies[0])
    for frame in (b"\x09\x01\x01", honest.frame[:9], honest.frame[:-1], Reply.unpack(replies[1]).frame[:-2]):
        with pytest.raises(aq.Refused, match="client 0 was refused"):
            run.server.receive(0, replace(honest, frame=frame).pack())
    run.server.receive(0, replies[0])


def test_relayed_frames_leave_out_what_the_first_one_says() -> None:
    rng = np.random.default_rng(1)
    old = Model(rng.standard_normal(D).astype(np.float32), np.empty(0, np.float32))
    frames = [(read_frame(aq.compress(rng.standard_normal(D), 1, k, quantizer="centroid")), 0.3 + k) for k in range(8)]
    relay = Relay(frames, 1.25)
    new = Model(add_up(old.weights, relay), old.buffers)
    log = Log(0, digest_of(old)).after_round(old, new, relay)
    held = open_parcel(Log(0, digest_of(old)).parcel(None, old), None, Layout.of(old.weights))
    parcel = log.parcel(0, new)
    whole = 36 + 12 + 16 + sum(16 + frame.size for frame, _ in frames)  # heads of parcel, step and parts
    assert len(parcel) < whole - 7 * 30
    assert open_parcel(parcel, held, None).model.weights.tobytes() == new.weights.tobytes()
