"""The Flower engine on nodes in this process: the same run as on the local engine, and every fault in its history."""

from __future__ import annotations

import importlib
import json
import logging
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import ConfigRecord, Message, RecordDict

import adaquantfl as aq
from adaquantfl.engines.calls import Call, Failure, Trained
from adaquantfl.engines.flower import client, engine, exchange, node, nodes, polling
from adaquantfl.engines.flower.engine import FlowerEngine
from adaquantfl.engines.flower.records import Questions, read_answers, read_question, write_answers
from adaquantfl.engines.local import LocalEngine
from adaquantfl.flower.records import KEY, PARCEL, REPLY
from adaquantfl.protocol.client import Client
from adaquantfl.protocol.messages import Reply
from adaquantfl.protocol.server import Server
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import Request
from adaquantfl.training.trainer import Trainer
from support import late
from support.fake_grid import NODE_GONE, NodesHere, Tamper, error
from support.frames import sealed
from support.histories import interrupt_after
from support.training_options import TRAINING

ELEMENTS = 25_450  # of the small model


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def small(**changes: Any) -> Config:
    """Three clients of a small model."""
    settings = {"model": "mlp", "clients": 3, "tau": 2, "rounds": 3, "s0": 2, "loss_samples": 32, "evaluate_every": 2}
    return load_config("demo", {**settings, "workers": 1, "round_timeout": 20.0, **changes})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    for module in (engine, exchange, nodes):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(nodes, "_LOOK_EVERY", 0.0)


def spoiled(change: Callable[[Reply], Reply]) -> Tamper:
    """A reply with its content changed, on its way."""

    def tamper(message: Message) -> Message:
        record = message.content.config_records[KEY]
        reply = record[f"{REPLY}.0"]
        assert isinstance(reply, bytes)
        record[f"{REPLY}.0"] = change(Reply.unpack(reply)).pack()
        return message

    return tamper


def frame_of(x: np.ndarray, s: int = 2) -> bytes:
    return aq.compress(x.astype(np.float32), s=s, key=0)


def with_nan_scale(frame: bytes) -> bytes:
    """A frame with a good checksum and its last scale replaced by NaN."""
    place = frame.index(struct.pack("<f", aq.decode(frame).scales[-1]))
    return sealed(frame[:place] + struct.pack("<f", float("nan")) + frame[place + 4 :])


FAULTS: dict[str, tuple[Callable[[Reply], Reply], str]] = {
    "altered": (lambda r: replace(r, frame=r.frame[:99] + bytes([r.frame[99] ^ 1]) + r.frame[100:]), "checksum"),
    "truncated": (lambda r: replace(r, frame=r.frame[:-9]), "truncated or altered"),
    "wrong dimension": (lambda r: replace(r, frame=frame_of(np.ones(7))), "dimension"),
    "NaN scale": (lambda r: replace(r, frame=with_nan_scale(r.frame)), "scale is negative, NaN"),
    "another s": (lambda r: replace(r, frame=frame_of(np.ones(ELEMENTS), s=9)), "s = 9"),
    "NaN loss": (lambda r: replace(r, loss=float("nan")), "diverged"),
    "another round": (lambda r: replace(r, round=7), "round 7"),
    "buffers from nowhere": (lambda r: replace(r, buffers=b"??"), "buffers"),
}


def engine_and_server(config: Config, grid: NodesHere, workers: int | None = None) -> tuple[FlowerEngine, Server]:
    flower = FlowerEngine(config, grid, workers)
    return flower, server_of(flower)


def server_of(engine: FlowerEngine | LocalEngine) -> Server:
    trainer = engine.player.trainer
    return Server(trainer.weights(), exact=trainer.buffer_names, stages=engine.config.stages(trainer.examples))


def train(engine: FlowerEngine | LocalEngine, server: Server, clients: list[int] | None = None) -> dict[int, Any]:
    """One round; each client's reply, or the Failure."""
    if clients is not None:
        server = Server(server.weights, exact=engine.player.trainer.buffer_names, downlink="model")
    answers = dict(engine.train(server, server.open(clients, eta=0.1)))
    for number, answer in answers.items():
        if isinstance(answer, Trained):
            server.receive(number, answer.reply)
    if not any(isinstance(answer, Failure) for answer in answers.values()):
        server.close()
    return {number: a.reply if isinstance(a, Trained) else a for number, a in sorted(answers.items())}


def play(config: Config, out: Path, grid: NodesHere, workers: int | None = None) -> list[dict[str, Any]]:
    """A run on this grid; the lines of its history."""
    Request(out, config).play(connect=lambda config: FlowerEngine(config, grid, workers))
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


@pytest.fixture
def node_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The keys of three clients' nodes, which the server has, and one of a stranger, as a SuperLink reports them."""
    found = {}
    for name in ("client0", "client1", "client2", "stranger"):
        public = ec.generate_private_key(ec.SECP384R1()).public_key()
        found[name] = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / f"{name}.pub").write_bytes(public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    monkeypatch.setenv("ADAQUANTFL_NODE_KEYS", str(tmp_path))
    return found


def test_a_node_takes_a_client_s_place_only_with_that_client_s_key(tmp_path: Path, node_keys: dict[str, bytes]) -> None:
    grid, config = NodesHere(3), small(rounds=1)
    grid.keys = {1000 + client: node_keys[f"client{client}"] for client in range(3)}
    for number, name in ((7000, "stranger"), (7001, "client1"), (7002, "")):  # all say that they are client 0
        grid.nodes[number] = {"partition-id": 0, "num-partitions": 3}
        grid.keys[number] = node_keys.get(name, b"")
    engine = FlowerEngine(config, grid)
    engine._nodes.refresh()
    assert engine._nodes.of == {0: 1000, 1: 1001, 2: 1002}
    for number in (7000, 7001, 7002):
        assert "says that it is client 0, but has not the key" in engine._nodes._unfit[number][0]
    grid.move(1)  # comes back under another id, with its key
    grid.keys[max(grid.nodes)] = node_keys["client1"]
    for _ in range(2):
        engine._nodes.refresh()
    assert engine._nodes.of[1] == max(grid.nodes)
    (line,) = play(config, tmp_path / "run", grid)
    assert line["clients"] == 3


def test_without_keys_the_last_node_to_come_is_the_client() -> None:
    grid = NodesHere(3)
    grid.nodes[7000] = {"partition-id": 0, "num-partitions": 3}
    engine = FlowerEngine(small(), grid)
    assert engine._nodes.of[0] == 7000


def test_a_missing_or_damaged_key_is_named(tmp_path: Path, node_keys: dict[str, bytes]) -> None:
    with pytest.raises(aq.ConfigError, match=r"client3.pub cannot be read: No such file"):
        FlowerEngine(small(clients=4), NodesHere(4))
    (tmp_path / "client1.pub").write_text("nothing")
    with pytest.raises(aq.ConfigError, match=r"client1.pub cannot be read"):
        FlowerEngine(small(), NodesHere(3))


@pytest.mark.parametrize("workers", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_the_same_seed_gives_the_same_model_as_on_the_local_engine(tmp_path: Path, workers: int | None) -> None:
    config = small()
    here = Request(tmp_path / "local", config).play()
    there = Request(tmp_path / "flower", config).play(connect=lambda c: FlowerEngine(c, NodesHere(3), workers))
    assert there["engine"] == ("flower" if workers else "flower-deployment")
    for key in ("model_sha256", "final_loss", "final_accuracy", "paper_bits", "wire_bytes_up", "wire_bytes_down"):
        assert there[key] == here[key], key


@pytest.mark.parametrize(
    "name", [one if one == "momentum" else pytest.param(one, marks=pytest.mark.slow) for one in TRAINING]
)
def test_other_optimizers_end_in_the_same_model_as_on_the_local_engine(tmp_path: Path, name: str) -> None:
    config = small(**TRAINING[name])
    here = Request(tmp_path / "local", config).play()
    connect = partial(FlowerEngine, grid=NodesHere(3))
    there = Request(tmp_path / "flower", config).play(connect=connect)
    for key in ("model_sha256", "final_loss", "wire_bytes_up", "wire_bytes_down"):
        assert there[key] == here[key], key
    with pytest.raises(KeyboardInterrupt):
        Request(tmp_path / "cut", config).play(interrupt_after(2), connect)
    assert Request(tmp_path / "cut").play(connect=connect)["model_sha256"] == here["model_sha256"]


ROBUST: dict[str, dict[str, Any]] = {
    "median": {"step": "median", "method": "8bit", "downlink": "exact"},
    "trimmed mean": {"step": "trimmed-mean", "trim": 0.34, "method": "8bit"},
    "krum": {"step": "krum", "hostile": 1, "clients": 5},
    "clip": {"max_update_norm": "1x", "norm_action": "clip", "downlink": "exact"},
    "private": {"private": True, "downlink": "exact"},
}


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(keys, id=name, marks=[pytest.mark.slow] if name in ("median", "trimmed mean") else [])
        for name, keys in ROBUST.items()
    ],
)
@pytest.mark.parametrize("workers", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_robust_steps_clips_and_privacy_end_in_the_same_model_as_on_the_local_engine(
    tmp_path: Path, keys: dict[str, Any], workers: int | None
) -> None:
    config = small(rounds=2, **keys)
    here = Request(tmp_path / "local", config).play()
    nodes_here = NodesHere(config.clients)
    there = Request(tmp_path / "flower", config).play(connect=lambda c: FlowerEngine(c, nodes_here, workers))
    plain = Request(tmp_path / "plain", small(rounds=2, clients=config.clients, method=config.method)).play()
    for key in ("model_sha256", "wire_bytes_up", "wire_bytes_down"):
        assert there[key] == here[key], key
    assert (there["model_sha256"] == plain["model_sha256"]) == ("private" in keys)  # the keys did something


def test_calls_and_the_model_come_through_unharmed() -> None:
    weights = {"w": np.arange(5, dtype=np.float32), "running_mean": np.array([1.5, -0.0], dtype=np.float32)}
    server = Server(weights, downlink="exact")
    orders, view = server.open([2], eta=0.1 + 0.2), server.view([2])[2]
    calls = [Call("train", 2, orders[2]), Call("losses", -1, view, (0, 9)), Call("correct", -1, view, (3, 9))]
    text, read = read_question(Questions("x = 1", server, calls).write([0, 1, 2], b""))
    assert text == "x = 1"
    assert [(call.name, call.client, call.numbers) for call in read] == [
        ("train", 2, (0, 0)),
        ("losses", -1, (0, 9)),
        ("correct", -1, (3, 9)),
    ]
    client = Client(2)
    for call in read:
        there: Any = client.open(call.order)
        assert {name: array.tobytes() for name, array in there.items()} == {n: a.tobytes() for n, a in weights.items()}
    assert client.order.evaluate
    client.open(read[0].order)
    assert (client.order.round, client.order.s, client.order.eta) == (0, 2, 0.1 + 0.2)


def parcels(grid: NodesHere) -> list[int]:
    """The sizes of what led to the model in each message."""
    asked = [message for message in grid.sent if message.metadata.message_type != "query"]
    return [len(message.content.config_records[PARCEL][PARCEL]) for message in asked]  # type: ignore[arg-type]


@pytest.fixture
def resident(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that keep what they are sent."""
    monkeypatch.setattr(client, "resident", True)


@pytest.mark.usefixtures("resident")
def test_nodes_that_keep_the_model_get_only_what_leads_on_from_it(tmp_path: Path) -> None:
    config = small(downlink="exact", rounds=4, evaluate_every=1)
    grid = NodesHere(3)
    play(config, tmp_path / "flower", grid)
    sizes = parcels(grid)
    whole = 4 * ELEMENTS
    assert all(size > whole for size in sizes[:3]), "nobody holds anything at first"
    assert all(size < 50 for size in sizes[3:6]), "the first round is about the model that was just evaluated"
    assert all(size < whole / 10 for size in sizes[3:])
    here = Request(tmp_path / "local", config).play()
    assert json.loads((tmp_path / "flower" / "summary.json").read_text())["model_sha256"] == here["model_sha256"]


@pytest.mark.usefixtures("resident")
def test_a_node_that_lost_its_model_asks_for_the_whole_and_gets_it_in_the_same_round() -> None:
    grid = NodesHere(3)
    flower, server = engine_and_server(small(downlink="exact"), grid)
    train(flower, server)
    grid.players.clear()
    grid.sent.clear()
    answers = train(flower, server)
    assert not any(isinstance(answer, Failure) for answer in answers.values())
    sizes = sorted(parcels(grid))
    assert len(sizes) == 6
    assert sizes[2] < 0.1 * 4 * ELEMENTS < 4 * ELEMENTS < sizes[3]


def test_nodes_that_keep_nothing_get_the_model_every_time() -> None:
    grid = NodesHere(3)
    flower, server = engine_and_server(small(downlink="exact"), grid)
    for _ in range(2):
        train(flower, server)
    assert all(size > 4 * ELEMENTS for size in parcels(grid))


@pytest.mark.parametrize("workers", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_a_sample_of_clients_ends_in_the_same_model_as_on_the_local_engine(tmp_path: Path, workers: int | None) -> None:
    config = small(clients=6, clients_per_round=2, loss="round")
    here = Request(tmp_path / "local", config).play()
    there = Request(tmp_path / "flower", config).play(connect=lambda c: FlowerEngine(c, NodesHere(6), workers))
    assert there["model_sha256"] == here["model_sha256"]
    assert there["final_loss"] == here["final_loss"]


def test_a_client_gets_one_message_for_all_its_calls() -> None:
    grid = NodesHere(3)
    flower, server = engine_and_server(small(), grid, workers=2)
    grid.sent.clear()
    flower.evaluate(server)
    calls = [json.loads(str(m.content.config_records[KEY]["calls"])) for m in grid.sent]
    assert [sorted(c[0] for c in each) for each in calls] == [["correct", "loss"], ["correct", "loss"], ["loss"]]


def test_clients_on_hosts_of_their_own_are_not_trusted_with_the_test_set() -> None:
    grid = NodesHere(3)
    flower, server = engine_and_server(small(), grid)
    grid.sent.clear()
    evaluation = flower.evaluate(server)
    assert all("correct" not in str(m.content.config_records[KEY]["calls"]) for m in grid.sent)
    assert evaluation == LocalEngine(small()).evaluate(server)


def test_of_200_nodes_only_those_asked_get_a_message_and_few_at_a_time() -> None:
    grid = NodesHere(200)
    flower, server = engine_and_server(small(clients=200, partition="iid"), grid, workers=2)
    grid.sent.clear()
    grid.most_out = 0
    chosen = list(range(5, 200, 10))
    assert list(train(flower, server, chosen)) == chosen
    assert len(grid.sent) == 20
    assert grid.most_out <= 4


@pytest.mark.usefixtures("whole_frames")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_reply_that_cannot_be_used_is_refused_with_its_reason_in_the_history(tmp_path: Path, fault: str) -> None:
    change, words = FAULTS[fault]
    lines = play(small(min_clients=2, rounds=1), tmp_path / "run", NodesHere(3, {1: spoiled(change)}))
    assert lines[0]["clients"] == 2
    assert words in lines[0]["missing"]["1"]


@pytest.mark.usefixtures("whole_frames")
def test_an_enormous_update_is_refused(tmp_path: Path) -> None:
    def boast(reply: Reply) -> Reply:
        sent, large = aq.decode(reply.frame), np.full(ELEMENTS, 1e6, np.float32)
        return replace(reply, frame=aq.compress(large, s=sent.s, key=0, segments=sent.segments))

    config = small(min_clients=2, rounds=1, max_update_norm="5x")
    lines = play(config, tmp_path / "run", NodesHere(3, {1: spoiled(boast)}))
    assert "5 times the median" in lines[0]["missing"]["1"]


NOT_ANSWERS = {
    "nothing": RecordDict(),
    "no JSON": RecordDict({KEY: ConfigRecord({"answers": "[[[["})}),
    "nested without end": RecordDict({KEY: ConfigRecord({"answers": "[" * 100_000})}),
    "too many": RecordDict({KEY: ConfigRecord({"answers": "[{}, {}]"})}),
    "no reply": RecordDict({KEY: ConfigRecord({"answers": '[{"train": 1, "encode": 1}]'})}),
    "text for a number": RecordDict({KEY: ConfigRecord({"answers": '[{"train": "1", "encode": 1}]', "reply.0": b""})}),
    "text for a reply": RecordDict({KEY: ConfigRecord({"answers": '[{"train": 1, "encode": 1}]', "reply.0": "x"})}),
}


@pytest.mark.parametrize("content", NOT_ANSWERS)
def test_a_message_that_is_no_answer_is_refused(tmp_path: Path, content: str) -> None:
    def tamper(reply: Message) -> Message:
        reply.content = NOT_ANSWERS[content]
        return reply

    lines = play(small(min_clients=2, rounds=1), tmp_path / "run", NodesHere(3, {1: tamper}))
    assert "its message was refused. It cannot be read" in lines[0]["missing"]["1"]


@pytest.mark.parametrize("claim", [True, 1001, -1, 3.5, "7", None])
def test_a_count_of_right_answers_that_cannot_be_is_refused(claim: object) -> None:
    content = RecordDict({KEY: ConfigRecord({"answers": json.dumps([{"value": claim}])})})
    with pytest.raises(aq.FrameError):
        read_answers(content, [Call("correct", -1, b"", (0, 1000))])


def test_answers_come_through_unharmed() -> None:
    answers = [Trained(b"frame", 1.5, 0.25), 0.1 + 0.2, Failure("no data\x1b[2J today", model_needed=True), 7]
    names = ("train", "loss", "loss", "correct")
    read = read_answers(write_answers(answers), [Call(name, 0, b"", (0, 9)) for name in names])
    assert read == [*answers[:2], Failure("no data [2J today", model_needed=True), 7]


def test_a_client_that_raises_is_absent_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works = Trainer.train

    def fails(self: Trainer, number: int, weights: Any, round: int, eta: float) -> Any:
        if number == 1 and round == 1:
            raise RuntimeError("no data today")
        return works(self, number, weights, round, eta)

    monkeypatch.setattr(Trainer, "train", fails)
    lines = play(small(min_clients=2), tmp_path / "run", NodesHere(3))
    assert [line["clients"] for line in lines] == [3, 2, 3]
    assert "it raised RuntimeError: no data today (test_flower_engine.py" in lines[1]["missing"]["1"]


def test_a_client_slower_than_the_timeout_is_given_up_and_its_late_reply_dropped(tmp_path: Path) -> None:
    grid = NodesHere(3, {1: lambda reply: None})
    config = small(min_clients=2, round_timeout=0.3)
    lines = play(config, tmp_path / "run", grid)
    assert [line["missing"]["1"] for line in lines] == ["no answer within round_timeout = 0.3 s."] * 3

    flower, server = engine_and_server(config, grid)
    late = train(flower, server)
    assert [number for number, answer in late.items() if isinstance(answer, Failure)] == [1]
    server.close()
    numbers = [number for number, reply in grid._replies.items() if reply is None]
    grid.tamper = {}
    grid._replies |= {number: grid._answer(m) for m in grid.sent if (number := m.metadata.message_id) in numbers}
    here, again = LocalEngine(config), server_of(flower)
    again.return_to(server.current)
    assert train(flower, server) == train(here, again)
    assert not flower._inbox._late, "late replies were fetched, so that they do not pile up"


def test_a_node_that_is_gone_is_named_by_the_message_that_it_did_not_answer(tmp_path: Path) -> None:
    lines = play(small(min_clients=2, rounds=1), tmp_path / "run", NodesHere(3, {1: error(NODE_GONE)}))
    assert "its SuperNode is gone" in lines[0]["missing"]["1"]


def test_too_few_clients_stop_the_run_with_a_sentence_and_it_resumes(tmp_path: Path) -> None:
    def trip(reply: Message) -> Message | None:
        return error(NODE_GONE)(reply) if reply.metadata.group_id == "2" else reply

    with pytest.raises(aq.EngineError, match=r"Round 2: 2 of 3 clients answered.*client 1: its SuperNode is gone"):
        play(small(), tmp_path / "run", NodesHere(3, {1: trip}))
    whole = Request(tmp_path / "local", small()).play()
    resumed = Request(tmp_path / "run").play(connect=lambda c: FlowerEngine(c, NodesHere(3)))
    assert resumed["model_sha256"] == whole["model_sha256"]


def test_a_node_that_comes_back_under_another_id_gets_its_client_back_in_the_same_round() -> None:
    grid = NodesHere(3)
    flower, server = engine_and_server(small(), grid)

    def die(reply: Message) -> None:
        grid.move(1)
        grid.tamper = {}

    grid.tamper = {1: die}
    here = LocalEngine(small())
    assert train(flower, server) == train(here, server_of(here))


def test_a_node_that_left_is_missing_at_once_and_its_client_back_when_it_is() -> None:
    grid = NodesHere(3)
    flower, server = engine_and_server(small(min_clients=2), grid)
    gone = grid.nodes.pop(1001)
    answers = train(flower, server)
    assert [answer.reason for answer in answers.values() if isinstance(answer, Failure)] == [
        "no SuperNode with partition-id=1 is connected."
    ]
    server.close()
    grid.nodes[5000] = gone
    assert not any(isinstance(answer, Failure) for answer in train(flower, server).values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"partition-id": ""}, "has no partition-id. Start it with --node-config"),
        ({"partition-id": 7}, "Its partition-id is 7, but clients are numbered from 0 to 2"),
        ({"num-partitions": 8}, "num-partitions=8, but the run has clients = 3"),
    ],
)
def test_a_node_that_cannot_take_part_is_named_with_the_reason(change: dict[str, Any], words: str) -> None:
    grid = NodesHere(3)
    grid.nodes[1001] |= change
    with pytest.raises(aq.EngineError, match=r"2 of 3 clients.* client 1: no SuperNode with partition-id=1") as refused:
        FlowerEngine(small(round_timeout=0.2), grid)
    assert words in str(refused.value)


def test_a_node_that_could_not_say_who_it_is_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_ASK_AGAIN", 0.0)
    grid = NodesHere(2)
    answers = iter([error(3), error(8), lambda reply: None])
    answer = grid._answer

    def fails_at_first(message: Message) -> Message | None:
        reply = answer(message)
        assert reply is not None
        return next(answers, lambda reply: reply)(reply)

    monkeypatch.setattr(grid, "_answer", fails_at_first)
    assert set(FlowerEngine(small(clients=2), grid)._nodes.of) == {0, 1}


def test_a_node_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = NodesHere(1)
    write = client.write_identity

    def old(config: Any, keeps: bool) -> RecordDict:
        content = write(config, keeps)
        content.config_records[KEY]["version"] = "0.0.1"
        return content

    monkeypatch.setattr(client, "write_identity", old)
    with pytest.raises(aq.EngineError, match=r"It runs adaquantfl 0\.0\.1, the server"):
        FlowerEngine(small(clients=1, round_timeout=0.2), grid)


def test_the_start_goes_on_without_late_nodes_where_min_clients_allows_it() -> None:
    grid = NodesHere(3)
    del grid.nodes[1002]
    flower, server = engine_and_server(small(min_clients=2), grid)
    assert [isinstance(answer, Failure) for answer in train(flower, server).values()] == [False, False, True]


def test_nobody_there_is_an_error_that_says_how_to_start_a_node() -> None:
    grid = NodesHere(2)
    grid.nodes.clear()
    with pytest.raises(aq.EngineError, match=r"0 of 2 clients.*Start it with --node-config 'partition-id=I"):
        FlowerEngine(small(clients=2, round_timeout=0.2), grid)


def test_a_node_asked_to_play_another_client_refuses() -> None:
    grid = NodesHere(3)
    flower, server = engine_and_server(small(), grid)
    grid.nodes[1001]["partition-id"] = 2  # started again with the same key and another --node-config
    answers = train(flower, server)
    assert isinstance(answers[1], Failure)
    assert "was asked to play client 1, but has partition-id=2" in answers[1].reason


PATCHED = (("flwr.supernode.start_client_internal", "time"), ("flwr.superlink.grid.http_grid", "pull_objects"))


def test_what_polling_replaces_in_flower_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in PATCHED:  # put back afterwards
        monkeypatch.setattr(importlib.import_module(module), name, getattr(importlib.import_module(module), name))
    slept: list[float] = []
    monkeypatch.setattr(polling, "time", SimpleNamespace(sleep=slept.append))
    loop = polling.poll_messages_sooner(0.25)
    assert loop is not None
    loop.time.sleep(3)
    assert slept == [0.25]
    for _ in range(2):  # a second run in the same process
        grid = polling.poll_replies_sooner()
        assert grid is not None
        assert grid.pull_objects.keywords.keys() == {"initial_backoff", "backoff_cap"}


@pytest.mark.parametrize(("module", "name"), PATCHED)
def test_a_flower_without_the_private_names_keeps_its_own_intervals(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    for path, other in PATCHED:
        monkeypatch.setattr(importlib.import_module(path), other, getattr(importlib.import_module(path), other))
    monkeypatch.delattr(importlib.import_module(module), name)
    found = polling.poll_messages_sooner(0.25) if name == "time" else polling.poll_replies_sooner()
    assert found is None
    assert f"no {name} in {module}" in caplog.text


def test_a_flower_without_the_private_names_starts_a_process_per_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    started: list[list[str]] = []

    class Started:
        def __init__(self, call: list[str], **options: Any) -> None:
            started.append(call)

        def poll(self) -> int:
            return 0

        def wait(self, timeout: float | None = None) -> int:
            return 0

        def terminate(self) -> None:
            pass

    monkeypatch.setattr(client, "resident", False)  # put back afterwards
    monkeypatch.setattr(node.subprocess, "Popen", Started)
    assert node.main(["--insecure"]) == 0
    monkeypatch.setitem(sys.modules, "adaquantfl.engines.flower.resident", None)
    monkeypatch.delattr(importlib.import_module("adaquantfl.engines.flower"), "resident", raising=False)
    assert node.main(["--insecure"]) == 0
    assert [call[call.index("--isolation") + 1] for call in started] == ["process", "subprocess"]
    assert "it starts a process per message" in caplog.text


def test_a_stop_ends_the_wait() -> None:
    with pytest.raises(KeyboardInterrupt):
        FlowerEngine(small(), NodesHere(0), stopped=lambda: True)


def test_updates_that_are_late_in_some_rounds_end_in_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late.soon(monkeypatch, last=4)
    config = small(method="cost-aware", rounds=7, downlink="exact", survey_every=1)
    here = Request(tmp_path / "local", config).play()
    there = Request(tmp_path / "flower", config).play(connect=lambda c: FlowerEngine(c, NodesHere(3)))
    lines = [json.loads(line) for line in (tmp_path / "flower" / "history.jsonl").read_text().splitlines()]
    assert ["harm" in line for line in lines[:5]] == [True, True, False, False, True], "rounds 3 and 4 are late"
    assert there["model_sha256"] == here["model_sha256"]


@pytest.mark.parametrize("workers", [None, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("quantizer", ["stc", "nearest"])
def test_error_feedback_ends_in_the_same_model_whichever_process_plays_a_client(
    quantizer: str, workers: int | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = small(quantizer=quantizer, method="1bit", sparsity=20, rounds=4, downlink="exact")
    here = Request(tmp_path / "local", config).play()
    grid = NodesHere(3)
    there = Request(tmp_path / "flower", config).play(connect=lambda c: FlowerEngine(c, grid, workers))
    assert there["model_sha256"] == here["model_sha256"]
    assert not grid.players, "no process kept anything"
    resumed = Request(tmp_path / "flower", changes={"rounds": 6})
    assert resumed.play(connect=lambda c: FlowerEngine(c, grid, workers))["rounds"] == 6
    assert "error feedback" in caplog.text
