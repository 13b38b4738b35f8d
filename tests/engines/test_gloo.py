"""The gloo engine's two sides and what passes between them; the clients are threads of the test's own process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import TCPStore

from adaquantfl.engines.calls import Call, Failure
from adaquantfl.engines.gloo import client as gloo_client
from adaquantfl.engines.gloo import launch as gloo_run
from adaquantfl.engines.gloo import link as gloo_link
from adaquantfl.engines.gloo import server as gloo_server
from adaquantfl.engines.gloo.messages import (
    ANSWER_BYTES,
    CALL_BYTES,
    AnswerError,
    CallHeader,
    Follows,
    Refusal,
    decode_answer,
    decode_call,
    encode_answer,
    encode_call,
)
from adaquantfl.engines.gloo.pair import Pair, keep_store, open_store
from adaquantfl.engines.gloo.server import GlooEngine
from adaquantfl.engines.local import LocalEngine
from adaquantfl.errors import ConfigError, EngineError
from adaquantfl.protocol import server
from adaquantfl.protocol.messages import Absence, Model, Plan, Reply
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import Request
from adaquantfl.training.task import Pictures, Task
from support.processes import wait_until

HERE = "127.0.0.1"
PLAN = Plan(0, 2, 0.1)


def small(**changes: Any) -> Config:
    settings = {"model": "mlp", "clients": 2, "tau": 2, "batch_size": 16, "loss_samples": 32}
    return load_config("demo", {**settings, **changes})


class ThreadClient(threading.Thread):
    """A client in this process, and what it said at its end."""

    def __init__(self, port: int, client: int) -> None:
        super().__init__(daemon=True)
        self.port, self.client, self.said = port, client, ""
        self.start()

    def run(self) -> None:
        try:
            gloo_client.play(open_store(HERE, self.port, 10), HERE, self.client)
        except EngineError as error:
            self.said = str(error)


class Federation:
    """A gloo engine with clients that are threads."""

    def __init__(self, config: Config, store: TCPStore | None = None) -> None:
        self.store = store or keep_store(HERE)
        self.engine = GlooEngine(config, self.store)
        self.clients: list[ThreadClient] = []

    def add(self, *clients: int) -> list[ThreadClient]:
        added = [ThreadClient(self.store.port, client) for client in clients]
        self.clients += added
        return added

    def train(self) -> list[Reply | Absence]:
        return list(self.engine.train(self.engine.federation.model, PLAN))

    def join_by_hand(self, client: int) -> Pair:
        """A client's connection, for a test to misuse."""
        joined = gloo_client._join(open_store(HERE, self.store.port, 10), HERE, client)
        assert joined is not None
        return joined[0]


@pytest.fixture
def federate() -> Iterator[Callable[..., Federation]]:
    """federate(config, clients that join at once); everything must have ended at the end."""
    made: list[Federation] = []
    threads = torch.get_num_threads()

    def make(config: Config, clients: Sequence[int] | None = None, store: TCPStore | None = None) -> Federation:
        federation = Federation(config, store)
        made.append(federation)
        federation.add(*(range(config.clients) if clients is None else clients))
        return federation

    yield make
    torch.set_num_threads(threads)
    for federation in made:
        federation.engine.close()
        federation.engine.close()
        for client in federation.clients:
            client.join(20)
            assert not client.is_alive()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("adaquantfl-client")]


def exact(replies: list[Reply]) -> list[tuple[Any, ...]]:
    return [(reply.client, reply.frame, reply.buffers, reply.round_loss) for reply in replies]


@pytest.mark.parametrize("s", [3, None])
def test_answers_are_those_of_the_local_engine(federate: Callable[..., Federation], s: int | None) -> None:
    config = small(clients=3, partition="dirichlet(0.5)")
    engine, local = federate(config).engine, LocalEngine(replace(config, workers=1))
    model = local.federation.model
    for plan in (Plan(0, s, 0.1), Plan(7, s, 0.05)):
        assert exact(list(engine.train(model, plan))) == exact(list(local.train(model, plan)))
    assert engine.evaluate(model) == local.evaluate(model)


def test_buffers_go_there_and_back(federate: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "of", lambda config: normalised_task())
    config = small()
    engine, local = federate(config).engine, LocalEngine(replace(config, workers=1))
    model = Model(local.federation.model.weights, np.linspace(0.5, 2, 13).astype(np.float32).round(1))
    replies = list(engine.train(model, PLAN))
    assert exact(replies) == exact(list(local.train(model, PLAN)))
    assert all(reply.buffers for reply in replies)
    assert engine.evaluate(model) == local.evaluate(model)


def normalised_task() -> Task:
    """A small model with BatchNorm on noise: 6 means, 6 variances and a count."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (60, 1, 4, 4), dtype=np.uint8)
    half = torch.full((1, 1, 1), 0.5)
    examples = Pictures(x, rng.integers(0, 3, 60), half, half)

    def build() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(16, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3)
        )

    parts = [np.arange(0, 20), np.arange(20, 60)]
    return Task(build, torch.nn.functional.cross_entropy, examples, examples, parts, ("a", "b", "c"))


@dataclass
class Sent:
    floats: list[int] = field(default_factory=list)
    parcels: list[int] = field(default_factory=list)


def count_sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What the server sends, as it does."""
    sent = Sent()
    send = Pair.send

    def count(pair: Pair, data: Any, timeout: float) -> None:
        if isinstance(data, np.ndarray):
            sent.floats.append(len(data))
        elif data.startswith(b"AQP1"):
            sent.parcels.append(len(data))
        send(pair, data, timeout)

    monkeypatch.setattr(Pair, "send", count)
    return sent


def test_a_model_is_sent_once(federate: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch) -> None:
    sent = count_sent(monkeypatch).floats
    engine = federate(small()).engine
    model = engine.federation.model
    engine.evaluate(model)
    list(engine.train(model, PLAN))
    engine.evaluate(model)
    d = engine.federation.dimension
    assert sent == [d, d]
    list(engine.train(Model(model.weights.copy(), model.buffers), PLAN))
    assert sent == [d] * 4


def test_the_exact_downlink_sends_steps_and_ends_in_the_same_model(
    federate: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent = count_sent(monkeypatch)
    config = small(clients=3, partition="dirichlet(0.5)", downlink="exact", evaluate_every=2, rounds=5)
    engine, local = federate(config).engine, LocalEngine(replace(config, workers=1))
    d = local.federation.dimension
    states = server.start(config, engine), server.start(config, local)
    assert sent.floats == [d] * 3
    for number in range(5):
        if number == 3:  # a mistake about what a client holds: it refuses the parcel and gets the model
            engine._links[1]._held_round = 1
        played = [server.play_round(state, config, by) for state, by in zip(states, (engine, local), strict=True)]
        states = tuple(
            server.evaluate(*after, config, by)[0] for after, by in zip(played, (engine, local), strict=True)
        )
        ours, theirs = states
        np.testing.assert_array_equal(ours.model.weights, theirs.model.weights)
        assert ours.latest == theirs.latest
        assert ours.ledger == theirs.ledger
    assert len(sent.parcels) >= 3 * 4
    assert max(sent.parcels) < d
    assert sent.floats == [d] * 4
    assert "Client 1 gets the model itself: The parcel leads on from the model of round 1" in caplog.text


def test_a_round_that_is_left_half_way_does_not_disturb_the_next(federate: Callable[..., Federation]) -> None:
    engine = federate(small(clients=3)).engine
    model = engine.federation.model
    expected = exact(list(engine.train(model, PLAN)))
    half = engine.train(model, Plan(5, 2, 0.1))
    next(half)
    half.close()
    assert exact(list(engine.train(model, PLAN))) == expected


def test_no_more_than_at_once_work_at_the_same_time(federate: Callable[..., Federation]) -> None:
    federation = federate(small(clients=4))
    engine = federation.engine
    engine._at_once = 2
    most = 0
    ask = engine._ask

    def watch(*arguments: Any) -> None:
        nonlocal most
        ask(*arguments)
        most = max(most, len(engine._asked))

    engine._ask = watch  # type: ignore[method-assign]
    assert [reply.client for reply in engine.train(engine.federation.model, PLAN)] == [0, 1, 2, 3]
    engine.evaluate(engine.federation.model)
    assert most == 2


def test_a_client_that_raises_is_absent_with_its_reason(federate: Callable[..., Federation]) -> None:
    engine = federate(small()).engine
    answers = list(engine.train(engine.federation.model, Plan(0, None, 0.1, survey=True)))
    assert all(isinstance(answer, Absence) for answer in answers)
    assert "raised AssertionError" in answers[0].reason
    assert [answer.client for answer in engine.train(engine.federation.model, PLAN)] == [0, 1]


def test_a_client_that_never_comes_is_not_waited_for(
    federate: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gloo_server, "JOIN_SECONDS", 1.0)
    federation = federate(small(min_clients=1), [1])
    engine = federation.engine
    model = engine.federation.model
    answers = list(engine.train(model, PLAN))
    assert answers[0] == Absence(0, "it did not join within 1 s.")
    assert isinstance(answers[1], Reply)
    federation.add(0)  # late, but welcome
    wait_until(lambda: isinstance(federation.train()[0], Reply), 20, "client 0 takes part")


def test_without_any_client_there_is_an_answer_too(
    federate: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gloo_server, "JOIN_SECONDS", 0.5)
    engine = federate(small(), []).engine
    answers = list(engine.carry(engine.federation.model, [("loss", (0,)), ("correct", (0, 10))]))
    assert answers == [Failure("it did not join within 0.5 s."), Failure("the server has to do it itself.")]


def test_who_is_started_anew_takes_the_place_of_the_former(federate: Callable[..., Federation]) -> None:
    federation = federate(small(), [0])
    engine = federation.engine
    former = federation.join_by_hand(1)
    rounds = engine.train(engine.federation.model, PLAN)
    assert isinstance(next(rounds), Reply)
    federation.add(1)
    assert next(rounds) == Absence(1, "it was started anew in mid-round.")
    with pytest.raises(RuntimeError):
        former.receive(10**6, 5.0)
    assert all(isinstance(answer, Reply) for answer in engine.train(engine.federation.model, PLAN))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ((0, ("train", ()), Reply(1, b"x" * 2**22, b"", 0.1, 0.0, 0.0)), "announced 4,194,304 bytes"),
        ((900, ("train", ()), Reply(1, b"x", b"", 0.1, 0.0, 0.0)), "answered call 90"),
        ((0, ("loss", ()), 0.5), "with kind 1"),
    ],
    ids=["size", "number", "kind"],
)
def test_nonsense_ends_that_client_s_connection_and_no_other(
    federate: Callable[..., Federation], header: tuple[int, Call, Any], words: str
) -> None:
    federation = federate(small(), [1])
    engine = federation.engine
    intruder = federation.join_by_hand(0)

    def misbehave() -> None:
        call = decode_call(intruder.receive(CALL_BYTES, 20.0), 0)
        intruder.receive_floats(call.follows.weights, 20.0)
        further, question, answer = header
        intruder.send(encode_answer(call.number + further, question, answer)[0], 20.0)

    threading.Thread(target=misbehave, daemon=True).start()
    first, second = engine.train(engine.federation.model, PLAN)
    assert isinstance(first, Absence)
    assert words in first.reason
    assert isinstance(second, Reply)
    with pytest.raises(RuntimeError):
        intruder.receive(10**6, 5.0)


def test_strangers_at_the_door_are_ignored(federate: Callable[..., Federation]) -> None:
    federation = federate(small(), [])
    store = open_store(HERE, federation.store.port, 10)
    keys = gloo_client.Keys(json.loads(store.get(gloo_client.RUN))["server"])
    for words in ["no JSON", '"text"', "[0]", "[0, 0]", '[0, "no.such.host.invalid"]']:
        store.set(keys.arrival(store.add(keys.arrivals, 1)), words)
    federation.join_by_hand(77)
    federation.add(0, 1)
    assert all(
        isinstance(answer, Reply) for answer in federation.engine.train(federation.engine.federation.model, PLAN)
    )


def test_what_a_former_server_left_in_the_store_is_passed_over(federate: Callable[..., Federation]) -> None:
    """A launcher that starts everything anew keeps its store."""
    store = keep_store(HERE)
    keys = gloo_client.Keys("former")
    store.set(gloo_client.RUN, gloo_client.announcement("former", small()))
    store.set(keys.arrival(store.add(keys.arrivals, 1)), json.dumps([0, HERE]))
    early = ThreadClient(store.port, 0)
    wait_until(lambda: store.add(keys.arrivals, 0) == 2, 10, "a client waits for the former server")
    federation = federate(small(), [], store)
    federation.clients.append(early)
    federation.add(1)
    assert all(
        isinstance(answer, Reply) for answer in federation.engine.train(federation.engine.federation.model, PLAN)
    )


def test_a_client_that_is_not_let_in_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_client, "JOIN_SECONDS", 0.5)
    store = keep_store(HERE)
    store.set(gloo_client.RUN, gloo_client.announcement("gone", small()))
    client = ThreadClient(store.port, 0)
    client.join(20)
    assert "Client 0 was not let in within 0.5 s" in client.said


def test_a_client_that_comes_after_the_end_has_nothing_to_do() -> None:
    store = keep_store(HERE)
    store.set(gloo_client.RUN, gloo_client.refusal())
    client = ThreadClient(store.port, 0)
    client.join(20)
    assert not client.is_alive()
    assert not client.said


def test_a_client_whose_server_is_gone_says_so(
    federate: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = federate(small())
    engine = federation.engine
    engine.evaluate(engine.federation.model)
    engine._links[0]._pair.hang_up()
    federation.clients[0].join(20)
    assert "Client 0 ends: the server has closed the connection or is gone" in federation.clients[0].said
    answers = list(engine.train(engine.federation.model, PLAN))
    assert answers[0] == Absence(0, "its connection is lost; it can be started again and joins in from then on.")
    assert isinstance(answers[1], Reply)


def test_a_silent_server_is_given_up_and_a_slow_one_is_heard(
    federate: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gloo_client, "SILENCE_SECONDS", 1.5)
    monkeypatch.setattr(gloo_link, "PING_SECONDS", 0.3)
    federation = federate(small(clients=1))
    threading.Event().wait(3)
    assert isinstance(federation.train()[0], Reply)
    monkeypatch.setattr(gloo_link, "PING_SECONDS", 1e6)
    assert isinstance(federation.train()[0], Reply)
    federation.clients[0].join(20)
    assert "gone" in federation.clients[0].said


def test_the_store_of_a_run_here_listens_on_this_machine_only() -> None:
    store = keep_store(HERE)
    port = f"{store.port:04X}"
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if f":{port} " in line]
    assert {address.split(":")[0] for address in listening} == {"0100007F"}


def test_another_version_is_refused(federate: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch) -> None:
    federation = federate(small(), [])
    federation.store.set(gloo_client.RUN, json.dumps({"version": "0.0.1", "config": {}}))
    (client,) = federation.add(0)
    client.join(20)
    assert "The server has adaquantfl 0.0.1, client 0 has" in client.said


def test_too_few_processes_are_counted_and_the_clients_sent_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = keep_store(HERE)
    environment = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": HERE, "MASTER_PORT": str(store.port)}
    for name, value in {**environment, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    client = ThreadClient(store.port, 0)
    with pytest.raises(ConfigError, match=r"2 processes were started .* 2 clients and the server are 3"):
        gloo_run.launch(Request(tmp_path / "run", small()))
    client.join(20)
    assert "Client 0 has nothing to do: 2 processes were started" in client.said
    assert not (tmp_path / "run").exists()


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match=r"127.0.0.1:1 was not reached within 0.3 s .*Is the server running"):
        open_store(HERE, 1, 0.3)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_PORT"])
def test_an_environment_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for key, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": HERE, "MASTER_PORT": "1", name: "-1"}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(ConfigError, match=f"{name} = '-1'"):
        gloo_run.Place.of_environment()


REASONS = st.text("abc öß.", max_size=30)
NUMBERS = st.floats(allow_nan=False)
REPLIES = st.builds(Reply, st.just(3), st.binary(max_size=50), st.binary(max_size=50), NUMBERS, NUMBERS, NUMBERS)


@given(
    st.integers(1, 2**32 - 1),
    st.one_of(
        st.tuples(st.just(("train", (3, PLAN))), REPLIES),
        st.tuples(st.sampled_from([("loss", (3,)), ("losses", (0, 1000))]), NUMBERS),
        st.tuples(st.just(("correct", (100, 200))), st.integers(0, 100)),
        st.tuples(
            st.just(("loss", (3,))), st.builds(lambda kind, *w: kind(*w), st.sampled_from([Failure, Refusal]), REASONS)
        ),
    ),
)
def test_answers_come_through(number: int, asked: tuple[Call, Any]) -> None:
    call, answer = asked
    head, body = encode_answer(number, call, answer)
    header = decode_answer(head, number, call, 10)
    assert header.size == len(body)
    assert header.answer(3, body) == answer


@given(
    st.integers(0, 2**32 - 1),
    st.one_of(
        st.builds(
            lambda *plan: ("train", (3, Plan(*plan))),
            st.integers(0, 2**32 - 1),
            st.one_of(st.none(), st.integers(1, 65535)),
            NUMBERS,
        ),
        st.just(("loss", (3,))),
        st.tuples(
            st.sampled_from(["losses", "correct"]), st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
        ),
    ),
)
def test_calls_come_through(number: int, call: Call) -> None:
    follows = Follows(4, 5, 2, 7)
    assert decode_call(encode_call(number, call, follows), 3) == CallHeader(number, call, follows)


@given(
    st.binary(min_size=ANSWER_BYTES, max_size=ANSWER_BYTES),
    st.sampled_from([("train", (0, PLAN)), ("loss", (0,)), ("correct", (5, 9))]),
)
def test_any_other_bytes_are_refused_or_harmless(header: bytes, call: Call) -> None:
    try:
        found = decode_answer(header, 7, call, 1000)
    except AnswerError:
        return
    assert found.size < 2**21
    found.answer(0, b"?" * found.size)


def test_a_reason_cannot_command_the_terminal() -> None:
    head, body = encode_answer(1, ("loss", (0,)), Failure("gone\x1b[2J\n"))
    assert decode_answer(head, 1, ("loss", (0,)), 1).answer(0, body) == Failure("gone [2J ")
