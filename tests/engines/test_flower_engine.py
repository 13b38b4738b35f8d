"""The Flower engine on nodes in this process: the same run as on the local engine, and every fault in its history."""

from __future__ import annotations

import importlib
import inspect
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

import adaquantfl as aq
from adaquantfl.engines.calls import Call
from adaquantfl.engines.flower import client, engine, haste, nodes
from adaquantfl.engines.flower import launch as flower_run
from adaquantfl.engines.flower.engine import FlowerEngine
from adaquantfl.engines.flower.identity import KEY
from adaquantfl.engines.flower.records import Questions, read_answers, read_question
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol.downlink import Downlink, open_parcel
from adaquantfl.protocol.messages import Absence, Model, Plan, Reply
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import Request
from protocol.test_faults import FAULTS, frame_of
from support.fake_grid import NODE_GONE, NodesHere, Tamper, error


def small(**changes: Any) -> Config:
    """Three clients and a short patience."""
    settings = {"model": "mlp", "clients": 3, "tau": 2, "rounds": 3, "s0": 2, "loss_samples": 32, "evaluate_every": 2}
    return load_config("demo", {**settings, "workers": 1, "round_timeout": 20.0, **changes})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_LOOK_EVERY", 0.0)
    monkeypatch.setattr(engine, "_CONNECT_WITHIN", 0.2)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def spoiled(change: Callable[[Reply], Reply]) -> Tamper:
    """A reply with its content changed, on its way."""

    def tamper(message: Message) -> Message:
        call = ("train", (1, Plan(0, 2, 0.1)))
        (reply,) = read_answers(message.content, [call])
        changed = change(reply)
        record = message.content.config_records[KEY]
        record["0.frame"], record["0.buffers"] = changed.frame, changed.buffers
        lines = json.loads(str(record["answers"]))
        lines[0]["round_loss"] = changed.round_loss
        record["answers"] = json.dumps(lines)
        return message

    return tamper


def play(config: Config, out: Path, grid: NodesHere, workers: int | None = None) -> list[dict[str, Any]]:
    """A run on this grid; the lines of its history."""
    Request(out, config).play(connect=lambda config: FlowerEngine(config, grid, workers))
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("workers", [None, 2])
def test_the_same_seed_gives_the_same_model_as_on_the_local_engine(tmp_path: Path, workers: int | None) -> None:
    config = small()
    here = Request(tmp_path / "local", config).play()
    there = Request(tmp_path / "flower", config).play(connect=lambda c: FlowerEngine(c, NodesHere(3), workers))
    assert there["engine"] == ("flower" if workers else "flower-deployment")
    for key in ("model_sha256", "final_loss", "final_accuracy", "paper_bits", "wire_bytes_up", "wire_bytes_down"):
        assert there[key] == here[key], key


def test_calls_and_the_model_come_through_unharmed() -> None:
    model = Model(np.arange(5, dtype=np.float32), np.array([1.5, -0.0], dtype=np.float32))
    calls: list[Call] = [
        ("train", (2, Plan(7, None, 0.1 + 0.2))),
        ("loss", (2,)),
        ("losses", (0, 9)),
        ("correct", (0, 9)),
    ]
    questions = Questions("x = 1", calls, model, Downlink.start(7, model))
    text, read, parcel = read_question(questions.write([0, 2, 3], None))
    assert (text, read) == ("x = 1", [calls[0], calls[2], calls[3]])
    there = open_parcel(parcel, None, 5, 2).model
    np.testing.assert_array_equal(there.weights, model.weights)
    np.testing.assert_array_equal(there.buffers, model.buffers)


def parcels(grid: NodesHere) -> list[int]:
    """The sizes of what led to the model in each message."""
    return [len(read_question(message.content)[2]) for message in grid.sent if message.metadata.message_type != "query"]


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
    whole = 4 * 25_450
    assert all(size > whole for size in sizes[:3]), "nobody holds anything at first"
    assert all(size < 50 for size in sizes[3:6]), "the first round is about the model that was just evaluated"
    assert all(size < whole / 10 for size in sizes[3:])
    here = Request(tmp_path / "local", config).play()
    assert json.loads((tmp_path / "flower" / "summary.json").read_text())["model_sha256"] == here["model_sha256"]


@pytest.mark.usefixtures("resident")
def test_a_node_that_lost_its_model_asks_for_the_whole_and_gets_it_in_the_same_round() -> None:
    grid = NodesHere(3)
    config = small()
    flower = FlowerEngine(config, grid)
    model = flower.federation.model
    list(flower.train(model, Plan(0, 2, 0.1)))
    for memory in grid.memories.values():
        memory.clear()
    grid.sent.clear()
    answers = list(flower.train(model, Plan(1, 2, 0.1)))
    assert not any(isinstance(answer, Absence) for answer in answers)
    assert len(parcels(grid)) == 6
    assert sorted(parcels(grid))[0] < 50 < 4 * 25_450 < sorted(parcels(grid))[3]


def test_nodes_that_keep_nothing_get_the_model_every_time() -> None:
    grid = NodesHere(3)
    flower = FlowerEngine(small(), grid)
    for round in range(2):
        list(flower.train(flower.federation.model, Plan(round, 2, 0.1)))
    assert all(size > 4 * 25_450 for size in parcels(grid))


@pytest.mark.parametrize("workers", [None, 2])
def test_a_sample_of_clients_ends_in_the_same_model_as_on_the_local_engine(tmp_path: Path, workers: int | None) -> None:
    config = small(clients=6, clients_per_round=2, loss="round")
    here = Request(tmp_path / "local", config).play()
    there = Request(tmp_path / "flower", config).play(connect=lambda c: FlowerEngine(c, NodesHere(6), workers))
    assert there["model_sha256"] == here["model_sha256"]
    assert there["final_loss"] == here["final_loss"]


def test_a_client_gets_one_message_for_all_its_calls() -> None:
    grid = NodesHere(3)
    engine = FlowerEngine(small(), grid, workers=2)
    grid.sent.clear()
    engine.evaluate(engine.federation.model)
    calls = [json.loads(str(m.content.config_records[KEY]["calls"])) for m in grid.sent]
    assert [sorted(c[0] for c in each) for each in calls] == [["correct", "loss"], ["correct", "loss"], ["loss"]]


def test_clients_on_hosts_of_their_own_are_not_trusted_with_the_test_set() -> None:
    grid = NodesHere(3)
    engine = FlowerEngine(small(), grid)
    grid.sent.clear()
    evaluation = engine.evaluate(engine.federation.model)
    assert all("correct" not in str(m.content.config_records[KEY]["calls"]) for m in grid.sent)
    assert evaluation == LocalEngine(small()).evaluate(engine.federation.model)


def test_of_200_nodes_only_those_asked_get_a_message_and_few_at_a_time() -> None:
    grid = NodesHere(200)
    engine = FlowerEngine(small(clients=200, partition="iid"), grid, workers=2)
    grid.sent.clear()
    grid.most_out = 0
    chosen = list(range(5, 200, 10))
    answers = list(engine.train(engine.federation.model, Plan(0, 2, 0.1), chosen))
    assert [answer.client for answer in answers] == chosen
    assert len(grid.sent) == 20
    assert grid.most_out <= 4


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "absent"])
def test_a_reply_that_cannot_be_used_is_refused_with_its_reason_in_the_history(tmp_path: Path, fault: str) -> None:
    change, words = FAULTS[fault]
    lines = play(small(min_clients=2, rounds=1), tmp_path / "run", NodesHere(3, {1: spoiled(change)}))
    assert lines[0]["clients"] == 2
    assert words in lines[0]["missing"]["1"]


def test_an_enormous_update_is_refused(tmp_path: Path) -> None:
    def boast(reply: Reply) -> Reply:
        return Reply(1, frame_of(np.full(25_450, 1e6)), b"", reply.round_loss, 0.0, 0.0)

    config = small(min_clients=2, rounds=1, max_update_norm="5x")
    lines = play(config, tmp_path / "run", NodesHere(3, {1: spoiled(boast)}))
    assert "5 times the median" in lines[0]["missing"]["1"]


NOT_ANSWERS = {
    "nothing": RecordDict(),
    "no JSON": RecordDict({KEY: ConfigRecord({"answers": "[[[["})}),
    "nested without end": RecordDict({KEY: ConfigRecord({"answers": "[" * 100_000})}),
    "too many": RecordDict({KEY: ConfigRecord({"answers": "[{}, {}]"})}),
    "no frame": RecordDict({KEY: ConfigRecord({"answers": '[{"round_loss": 1}]'})}),
    "text for a number": RecordDict({KEY: ConfigRecord({"answers": '[{"round_loss": "1"}]', "0.frame": b""})}),
    "text for a frame": RecordDict({KEY: ConfigRecord({"answers": "[{}]", "0.frame": "frame"})}),
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
        read_answers(content, [("correct", (0, 1000))])


def test_a_client_that_raises_is_absent_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from adaquantfl.training.trainer import Trainer

    train = Trainer.train

    def fails(self: Trainer, number: int, model: Model, plan: Plan) -> Reply:
        if number == 1 and plan.round == 1:
            raise RuntimeError("no data today")
        return train(self, number, model, plan)

    monkeypatch.setattr(Trainer, "train", fails)
    lines = play(small(min_clients=2), tmp_path / "run", NodesHere(3))
    assert [line["clients"] for line in lines] == [3, 2, 3]
    assert "it raised RuntimeError: no data today (test_flower_engine.py" in lines[1]["missing"]["1"]


def test_a_client_slower_than_the_timeout_is_given_up_and_its_late_reply_dropped(tmp_path: Path) -> None:
    grid = NodesHere(3, {1: lambda reply: None})
    config = small(min_clients=2, round_timeout=0.3)
    lines = play(config, tmp_path / "run", grid)
    assert [line["missing"]["1"] for line in lines] == ["no answer within round_timeout = 0.3 s."] * 3

    engine = FlowerEngine(config, grid)
    (late,) = [a for a in engine.train(engine.federation.model, Plan(0, 2, 0.1)) if isinstance(a, Absence)]
    assert late.client == 1
    numbers = [number for number, reply in grid._replies.items() if reply is None]
    grid.tamper = {}
    grid._replies |= {number: grid._answer(m) for m in grid.sent if (number := m.metadata.message_id) in numbers}
    answers = list(engine.train(engine.federation.model, Plan(1, 2, 0.1)))
    assert not any(isinstance(answer, Absence) for answer in answers)
    fresh = list(LocalEngine(config).train(engine.federation.model, Plan(1, 2, 0.1)))
    assert [a.frame for a in answers] == [a.frame for a in fresh]
    assert not engine._mail._late, "late replies were fetched, so that they do not pile up"


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
    config = small()
    engine = FlowerEngine(config, grid)

    def die(reply: Message) -> None:
        grid.move(1)
        grid.tamper = {}

    grid.tamper = {1: die}
    answers = list(engine.train(engine.federation.model, Plan(0, 2, 0.1)))
    expected = list(LocalEngine(config).train(engine.federation.model, Plan(0, 2, 0.1)))
    assert [answer.frame for answer in answers] == [answer.frame for answer in expected]


def test_a_node_that_left_is_missing_at_once_and_its_client_back_when_it_is() -> None:
    grid = NodesHere(3)
    engine = FlowerEngine(small(), grid)
    gone = grid.nodes.pop(1001)
    answers = list(engine.train(engine.federation.model, Plan(0, 2, 0.1)))
    assert [answer.reason for answer in answers if isinstance(answer, Absence)] == [
        "no SuperNode with partition-id=1 is connected."
    ]
    grid.nodes[5000] = gone
    answers = list(engine.train(engine.federation.model, Plan(1, 2, 0.1)))
    assert not any(isinstance(answer, Absence) for answer in answers)


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
    monkeypatch.setattr(engine, "_CONNECT_WITHIN", 20.0)
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
    engine = FlowerEngine(small(round_timeout=0.2, min_clients=2), grid)
    answers = list(engine.train(engine.federation.model, Plan(0, 2, 0.1)))
    assert [isinstance(answer, Absence) for answer in answers] == [False, False, True]


def test_nobody_there_is_an_error_that_says_how_to_start_a_node() -> None:
    grid = NodesHere(2)
    grid.nodes.clear()
    with pytest.raises(aq.EngineError, match=r"0 of 2 clients.*Start it with --node-config 'partition-id=I"):
        FlowerEngine(small(clients=2, round_timeout=0.2), grid)


def test_a_node_asked_to_play_another_client_refuses() -> None:
    grid = NodesHere(3)
    engine = FlowerEngine(small(), grid)
    grid.nodes[1001]["partition-id"] = 2  # started again with the same key and another --node-config
    answers = list(engine.train(engine.federation.model, Plan(0, 2, 0.1)))
    assert isinstance(answers[1], Absence)
    assert "was asked to play client 1, but has partition-id=2" in answers[1].reason


def test_what_haste_replaces_in_flower_is_there() -> None:
    before = {}
    for module, name in (
        ("flwr.supernode.start_client_internal", "time"),
        ("flwr.superlink.grid.http_grid", "pull_objects"),
    ):
        before[name] = importlib.import_module(module), getattr(importlib.import_module(module), name)
    try:
        slept: list[float] = []
        time.sleep = slept.append  # type: ignore[assignment]  # put back by monkeypatch
        haste.hurry_supernode(0.25).time.sleep(3)
        assert slept == [0.25]
        assert haste.hurry_server().pull_objects.keywords.keys() == {"initial_backoff", "backoff_cap"}
        known = inspect.signature(before["pull_objects"][1]).parameters
        assert {"initial_backoff", "backoff_cap"} <= set(known)
    finally:
        for name, (module, value) in before.items():
            setattr(module, name, value)


def test_a_stop_ends_the_wait() -> None:
    with pytest.raises(KeyboardInterrupt):
        FlowerEngine(small(), NodesHere(0), stopped=lambda: True)


@pytest.mark.parametrize("quantizer", ["stc", "nearest"])
def test_error_feedback_is_refused_where_a_client_may_be_any_process(quantizer: str, tmp_path: Path) -> None:
    config = small(quantizer=quantizer, method="1bit")
    with pytest.raises(aq.ConfigError, match="--engine local or gloo"):
        FlowerEngine(config, NodesHere(3))
    with pytest.raises(aq.ConfigError, match="--engine local or gloo"):
        flower_run.simulate(Request(tmp_path / "run", config))  # before any process is started
    FlowerEngine(replace(config, method="fp32"), NodesHere(3)).close()  # which leaves nothing out
