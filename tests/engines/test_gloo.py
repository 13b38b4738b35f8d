"""The gloo engine's two sides and what passes between them; the clients are threads of the test's own process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import PrefixStore, Store, TCPStore

from adaquantfl.engines.calls import Call, Failure, Trained
from adaquantfl.engines.gloo import client as gloo_client
from adaquantfl.engines.gloo import connection, rendezvous
from adaquantfl.engines.gloo import launch as gloo_run
from adaquantfl.engines.gloo import remote as gloo_remote
from adaquantfl.engines.gloo.connection import Connection
from adaquantfl.engines.gloo.engine import GlooEngine
from adaquantfl.engines.gloo.rendezvous import ADMITTED, ARRIVAL, ARRIVALS, host_store, open_store, server_part
from adaquantfl.engines.gloo.secrets import VARIABLE, Seal, client_secret, server_secrets
from adaquantfl.engines.gloo.wire import (
    ANSWER_BYTES,
    CALL_BYTES,
    RESTORE,
    STATE,
    AnswerError,
    CallHeader,
    pack_answer,
    pack_call,
    unpack_answer,
    unpack_call,
)
from adaquantfl.engines.local import LocalEngine
from adaquantfl.errors import ConfigError, EngineError
from adaquantfl.protocol.messages import ORDER_MAGIC, SIGNATURE_SIZE
from adaquantfl.protocol.server import Server
from adaquantfl.runs import loop
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import Request
from support.engine_rounds import ask, play_round, replies, server_of
from support.processes import wait_until

HERE = "127.0.0.1"
SECONDS = 200.0  # for what must happen; a busy machine may need many of them


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
            gloo_client.play(open_store(HERE, self.port, SECONDS), HERE, self.client)
        except EngineError as error:
            self.said = str(error)


class Federation:
    """A gloo engine with clients that are threads, and a server."""

    def __init__(self, config: Config, store: TCPStore | None = None) -> None:
        self.store = store or host_store(HERE)
        self.engine = GlooEngine(config, self.store)
        self.server = server_of(self.engine)
        self.clients: list[ThreadClient] = []

    def add(self, *clients: int) -> list[ThreadClient]:
        added = [ThreadClient(self.store.port, client) for client in clients]
        self.clients += added
        return added

    def wait_for_news(self) -> None:
        """Until a client has joined or been lost, while nothing is asked of it."""
        wait_until(lambda: not self.engine._events.empty(), SECONDS, "there are news of a client")

    def join_by_hand(self, client: int) -> Connection:
        """A client's connection, for a test to misuse."""
        joined = rendezvous.join(open_store(HERE, self.store.port, SECONDS), HERE, client)
        assert joined is not None
        return joined[0]

    def part(self) -> Store:
        """The server's part of the store, as another process sees it."""
        store = open_store(HERE, self.store.port, SECONDS)
        return server_part(store, json.loads(rendezvous.announced(store))["server"])

    def replies(self) -> dict[int, bytes | str]:
        return replies(self.engine, self.server)

    def all_answer(self) -> bool:
        return all(isinstance(reply, bytes) for reply in self.replies().values())


Federate = Callable[..., Federation]


@pytest.fixture
def federate() -> Iterator[Federate]:
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
            client.join(SECONDS)
            assert not client.is_alive()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("adaquantfl-client")]


def answer_by_hand(connection: Connection, answer: Callable[[CallHeader], tuple[bytes, ...]]) -> None:
    """Take a call and send something."""
    header = unpack_call(connection.receive(CALL_BYTES, SECONDS))
    connection.receive(header.size, SECONDS)
    for part in answer(header):
        connection.send(part, SECONDS)


def answer_in_a_thread(*arguments: Any) -> None:
    threading.Thread(target=answer_by_hand, args=arguments, daemon=True).start()


@pytest.mark.parametrize("method", ["adaquant", "fp32"])
def test_answers_are_those_of_the_local_engine(federate: Federate, method: str) -> None:
    config = small(clients=3, partition="dirichlet(0.5)", rule=method)
    federation, local = federate(config), LocalEngine(replace(config, workers=1))
    for round in (0, 7):
        ours = replies(federation.engine, federation.server, round=round)
        assert ours == replies(local, federation.server, round=round)
        assert all(isinstance(reply, bytes) for reply in ours.values())
    assert federation.engine.evaluate(federation.server) == local.evaluate(federation.server)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each order that is sent."""
    sizes: list[int] = []
    send = Connection.send

    def count(connection: Connection, data: bytes, timeout: float) -> None:
        if data.startswith(ORDER_MAGIC):
            sizes.append(len(data))
        send(connection, data, timeout)

    monkeypatch.setattr(Connection, "send", count)
    return sizes


def models_in(sent: list[int], server: Server) -> int:
    """How many of the orders were as large as a model."""
    models = sum(size > 4 * server.held.layout.dimension for size in sent)
    sent.clear()
    return models


def test_the_exact_downlink_sends_steps_and_ends_in_the_same_model(federate: Federate, sent: list[int]) -> None:
    config = small(clients=3, partition="dirichlet(0.5)", downlink="exact")
    federation, local = federate(config), LocalEngine(replace(config, workers=1))
    engine, ours, theirs = federation.engine, federation.server, server_of(local)
    assert engine.evaluate(ours) == local.evaluate(theirs)
    assert models_in(sent, ours) == 3
    for number in range(5):
        assert play_round(engine, ours) == play_round(local, theirs)
        if number % 2:
            assert engine.evaluate(ours) == local.evaluate(theirs)
    assert models_in(sent, ours) == 0
    former = federation.clients[1]
    federation.add(1)  # holds nothing, and is sent the whole model at once
    federation.wait_for_news()
    engine._take_in_waiting_events()
    former.join(SECONDS)
    engine._clients[2].holds = ours.digest  # wrong: it holds the model before
    play_round(local, theirs)
    assert "missing" not in play_round(engine, ours)
    np.testing.assert_array_equal(ours.model.weights, theirs.model.weights)
    assert len(sent) == 3 + 1
    assert models_in(sent, ours) == 2


def test_a_round_that_is_left_half_way_does_not_disturb_the_next(federate: Federate) -> None:
    federation = federate(small(clients=3))
    expected = federation.replies()
    half = ask(federation.engine, federation.server, round=5)
    next(half)
    half.close()
    assert federation.replies() == expected


def test_a_client_that_raises_is_absent_with_its_reason(federate: Federate) -> None:
    federation = federate(small())
    reasons = replies(federation.engine, federation.server, s=0.0)
    assert all("that is not above 0" in str(reason) for reason in reasons.values())
    assert federation.all_answer()


def test_a_client_that_never_comes_is_not_waited_for(federate: Federate) -> None:
    federation = federate(small(min_clients=1), [1])
    federation.wait_for_news()
    federation.engine._join_deadline = time.monotonic()
    answers = federation.replies()
    assert answers[0] == "it did not join within 300 s."
    assert isinstance(answers[1], bytes)
    federation.add(0)  # late, but welcome
    federation.wait_for_news()
    assert federation.all_answer()


def test_who_is_started_anew_takes_the_place_of_the_former(federate: Federate) -> None:
    federation = federate(small(), [0])
    former = federation.join_by_hand(1)
    answers = ask(federation.engine, federation.server)
    client, answer = next(answers)
    assert client == 0
    assert isinstance(answer, Trained)
    federation.add(1)
    assert next(answers) == (1, Failure("it was restarted during the round."))
    answers.close()
    with pytest.raises(RuntimeError):
        answer_by_hand(former, lambda header: pack_answer(header.number, Failure("")))
    assert federation.all_answer()


@pytest.mark.parametrize(
    ("further", "answer", "words"),
    [
        (0, Trained(b"x" * 2**22, 0.1, 0.1), "announced 4,194,304 bytes"),
        (900, Trained(b"x", 0.1, 0.1), "answered call 90"),
        (0, 0.5, "with kind 2"),
    ],
    ids=["size", "number", "kind"],
)
def test_nonsense_ends_that_client_s_connection_and_no_other(
    federate: Federate, further: int, answer: Any, words: str
) -> None:
    federation = federate(small(), [1])
    intruder = federation.join_by_hand(0)
    answer_in_a_thread(intruder, lambda header: (pack_answer(header.number + further, answer)[0], b""))
    first, second = federation.replies().values()
    assert isinstance(first, str)
    assert words in first
    assert isinstance(second, bytes)
    with pytest.raises(RuntimeError):
        intruder.receive(CALL_BYTES, SECONDS)


def test_strangers_that_announce_themselves_are_ignored(federate: Federate) -> None:
    federation = federate(small(), [])
    part = federation.part()
    for words in ["no JSON", '"text"', "[0]", "[0, 0]", '[0, 0, ""]', '[0, "no.such.host.invalid", ""]']:
        part.set(ARRIVAL(part.add(ARRIVALS, 1)), words)
    federation.join_by_hand(77)
    federation.add(0, 1)
    assert federation.all_answer()


def test_an_arrival_that_died_blocks_nobody(federate: Federate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that took a number and died, nor several that died before they connected.

    PyTorch before 2.8 has no copies of stores: there two of them held up everybody for 60 s.
    """
    monkeypatch.setattr(PrefixStore, "clone", lambda store: store, raising=False)
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 4 * SECONDS)  # who waits for a dead one waits too long
    federation = federate(small(), [])
    part = federation.part()
    part.add(ARRIVALS, 1)
    dead = [part.add(ARRIVALS, 1) for _ in range(3)]
    for number in dead:
        part.set(ARRIVAL(number), json.dumps([0, HERE, ""]))
    wait_until(lambda: part.check([ADMITTED(number) for number in dead]), SECONDS, "the server tries to connect")
    federation.add(0, 1)
    began = time.monotonic()
    assert federation.all_answer()
    assert time.monotonic() - began < SECONDS


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A secret for each of two clients, which both sides find."""
    (tmp_path / "secrets").mkdir()
    for client in range(2):
        file = tmp_path / "secrets" / f"client{client}.secret"
        file.touch(0o600)
        file.write_text(f"{client:064x}\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "secrets"))
    return tmp_path / "secrets"


def test_with_secrets_a_run_ends_in_the_same_model(federate: Federate, secrets: Path) -> None:
    config = small(quantizer="nearest", rule="2bit")  # its clients have states too
    federation, local = federate(config), LocalEngine(replace(config, workers=1))
    ours, theirs = federation.server, server_of(local)
    for _ in range(2):
        line, plain = play_round(federation.engine, ours), play_round(local, theirs)
        assert "missing" not in line
        assert line["wire_bytes_up"] == plain["wire_bytes_up"] + 2 * SIGNATURE_SIZE * line["round"]
    assert ours.model.weights.tobytes() == theirs.model.weights.tobytes()
    assert federation.engine.evaluate(ours) == local.evaluate(theirs)
    assert set(federation.engine.client_states()) == {"0", "1"}
    federation.engine.restore_clients(federation.engine.client_states())
    assert "missing" not in play_round(federation.engine, ours)


@pytest.mark.parametrize("how", ["without a proof", "with its own secret", "with the proof of another arrival"])
def test_who_claims_the_number_of_another_client_is_refused_and_the_client_stays(
    federate: Federate, secrets: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    federation = federate(small())
    play_round(federation.engine, federation.server)
    remote = federation.engine._clients[0]
    part = federation.part()
    if how == "with its own secret":
        with pytest.raises(EngineError, match="The server refused client 0: it has another secret"):
            rendezvous.join(open_store(HERE, federation.store.port, SECONDS), HERE, 0, client_secret(1))
    else:
        _, _, proof = json.loads(part.get(ARRIVAL(1)))
        number = part.add(ARRIVALS, 1)
        part.set(ARRIVAL(number), json.dumps([0, HERE, "" if how == "without a proof" else proof]))
        wait_until(lambda: part.check([ADMITTED(number)]), SECONDS, "the server has decided")
        assert part.get(ADMITTED(number)) == b"refused"
    wait_until(lambda: "was refused: wrong secret" in caplog.text, SECONDS, "the server has logged it")
    assert "missing" not in play_round(federation.engine, federation.server)
    assert federation.engine._clients[0] is remote


def test_an_answer_that_is_not_sealed_with_the_secret_ends_the_connection(federate: Federate, secrets: Path) -> None:
    federation = federate(small(min_clients=1), [1])
    joined = rendezvous.join(open_store(HERE, federation.store.port, SECONDS), HERE, 0, client_secret(0))
    assert joined is not None

    def false_loss(header: CallHeader) -> tuple[bytes, ...]:
        parts = pack_answer(header.number, 0.001)
        return (*parts, Seal(client_secret(1), "").of(*parts))

    answer_in_a_thread(joined[0], false_loss)
    calls = [Call("loss", client) for client in (0, 1)]
    answers = dict(federation.engine.carry(federation.server, calls))
    assert answers[0] == Failure("its answer is not signed with this client's secret.")
    assert isinstance(answers[1], float)


@pytest.mark.parametrize("who", ["client", "server"])
def test_a_secret_on_one_side_only_is_an_error(
    federate: Federate, secrets: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    if who == "client":
        monkeypatch.delenv(VARIABLE)
    federation, secret = federate(small(), []), b"x" * 32 if who == "client" else b""
    with pytest.raises(EngineError, match="set it for both, or for neither"):
        rendezvous.join(open_store(HERE, federation.store.port, SECONDS), HERE, 0, secret)


def test_secrets_are_for_their_owner_alone(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(secrets.iterdir())
    assert server_secrets(2) == {0: client_secret(0), 1: client_secret(1)}
    with pytest.raises(ConfigError, match=r"client2.secret cannot be read.*all clients' files on the server"):
        server_secrets(3)
    files[0].chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        client_secret(0)
    files[1].write_text("short")
    with pytest.raises(ConfigError, match="does not hold a secret"):
        client_secret(1)
    monkeypatch.delenv(VARIABLE)
    assert (server_secrets(2), client_secret(0)) == ({}, b"")


def test_what_a_former_server_left_in_the_store_is_passed_over(federate: Federate) -> None:
    """A launcher that starts everything anew keeps its store."""
    store = host_store(HERE)
    former = server_part(store, "former")
    rendezvous.announce_run(store, "former", small())
    former.set(ARRIVAL(former.add(ARRIVALS, 1)), json.dumps([0, HERE, ""]))
    early = ThreadClient(store.port, 0)
    wait_until(lambda: former.add(ARRIVALS, 0) == 2, SECONDS, "a client waits for the former server")
    federation = federate(small(), [], store)
    federation.clients.append(early)
    federation.add(1)
    assert federation.all_answer()


def test_a_client_that_is_not_let_in_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "JOIN_SECONDS", 0.5)
    store = host_store(HERE)
    rendezvous.announce_run(store, "gone", small())
    client = ThreadClient(store.port, 0)
    client.join(SECONDS)
    assert "Client 0 was not let in within 0.5 s" in client.said


def test_a_client_that_comes_after_the_end_has_nothing_to_do() -> None:
    store = host_store(HERE)
    rendezvous.announce_end(store)
    client = ThreadClient(store.port, 0)
    client.join(SECONDS)
    assert not client.is_alive()
    assert not client.said


def test_a_client_whose_server_is_gone_says_so(federate: Federate) -> None:
    federation = federate(small())
    federation.engine.evaluate(federation.server)
    federation.engine._clients[0]._connection.abort()
    federation.clients[0].join(SECONDS)
    assert "Client 0 ends: the server has closed the connection or is gone" in federation.clients[0].said
    answers = federation.replies()
    assert answers[0] == "its connection is lost; it can be started again and joins in from then on."
    assert isinstance(answers[1], bytes)


def test_clients_get_back_what_they_left_out(federate: Federate) -> None:
    config = small(quantizer={"name": "stc", "sparsity": 20}, rule="1bit")
    first = federate(config)
    play_round(first.engine, first.server)
    states, saved = first.engine.client_states(), first.server.state()
    assert set(states) == {"0", "1"}
    assert all(state["remainder"]["value"].any() for state in states.values())
    second = federate(config)
    second.server = Server.restore(saved, stages=second.server.stages)
    assert second.replies() != first.replies()  # without their states; the first are now a round ahead
    third = federate(config)
    third.engine.restore_clients(states)
    np.testing.assert_equal(third.engine.client_states(), states)
    fourth = LocalEngine(replace(config, workers=1))
    fourth.restore_clients(states)
    third.server = second.server
    assert third.replies() == replies(fourth, second.server)


def test_a_client_that_is_gone_cannot_hand_over_its_state_and_resuming_says_so(
    federate: Federate, caplog: pytest.LogCaptureFixture
) -> None:
    config = small(quantizer={"name": "stc", "sparsity": 20}, rule="1bit")
    federation = federate(config)
    engine = federation.engine
    play_round(engine, federation.server)
    engine._clients[1]._connection.abort()
    states = engine.client_states()
    assert states["0"] is not None
    assert states["1"] is None
    saved = {"server": federation.server.state(), "clients": states}
    loop._check_feedback(saved)
    assert "does not hold what these clients had left out of their updates (error feedback)" in caplog.text
    caplog.clear()
    loop._check_feedback({**saved, "clients": dict.fromkeys(states)})
    assert all(client in caplog.text for client in states)
    engine.restore_clients({"1": states["0"]})
    assert "Not every client got back what it had left out" in caplog.text
    assert "client 1: its connection is lost" in caplog.text


def test_a_state_that_cannot_be_read_counts_as_missing(federate: Federate) -> None:
    federation = federate(small(clients=1, quantizer="stc", rule="1bit"), [])
    client = federation.join_by_hand(0)
    answer_in_a_thread(client, lambda header: pack_answer(header.number, b"PK"))
    assert federation.engine.client_states() == {"0": None}


def test_the_store_of_a_run_here_listens_on_this_machine_only() -> None:
    store = host_store(HERE)
    port = f"{store.port:04X}"
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if f":{port} " in line]
    assert {address.split(":")[0] for address in listening} == {"0100007F"}


def test_another_version_is_refused(federate: Federate, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = federate(small(), [])
    federation.store.set(rendezvous._RUN, json.dumps({"version": "0.0.1", "config": {}}))
    (client,) = federation.add(0)
    client.join(SECONDS)
    assert "The server has adaquantfl 0.0.1, client 0 has" in client.said


def test_too_few_processes_are_counted_and_the_clients_dismissed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = host_store(HERE)
    environment = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": HERE, "MASTER_PORT": str(store.port)}
    for name, value in {**environment, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    client = ThreadClient(store.port, 0)
    with pytest.raises(ConfigError, match=r"2 processes were started .* 2 clients and the server are 3"):
        gloo_run.launch(Request(tmp_path / "run", small()))
    client.join(SECONDS)
    assert "Client 0 has nothing to do: 2 processes were started" in client.said
    assert not (tmp_path / "run").exists()


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match=r"127.0.0.1:1 was not reached within 0.3 s .*Is the server running"):
        open_store(HERE, 1, 0.3)


def test_an_environment_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"RANK": "0", "WORLD_SIZE": "-1", "MASTER_ADDR": HERE, "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(ConfigError, match="WORLD_SIZE = '-1'"):
        gloo_run.LaunchedProcess.of_environment()


REASONS = st.text("abc öß.", max_size=30)
NUMBERS = st.floats(allow_nan=False)
COUNTS = st.integers(0, 2**32 - 1)
TRAINED = st.builds(Trained, st.binary(max_size=50), NUMBERS, NUMBERS)


@given(
    COUNTS,
    st.one_of(
        st.tuples(st.just("train"), TRAINED),
        st.tuples(st.just(STATE), st.binary(max_size=50)),
        st.tuples(st.sampled_from(["loss", RESTORE]), NUMBERS),
        st.tuples(st.sampled_from(["train", "loss"]), st.builds(Failure, REASONS, st.booleans())),
    ),
)
def test_answers_come_through(number: int, asked: tuple[str, Any]) -> None:
    name, answer = asked
    head, body = pack_answer(number, answer)
    header = unpack_answer(head, number, Call(name, 3), 100)
    assert header.size == len(body)
    assert header.answer(body) == answer


@given(
    COUNTS,
    st.builds(
        Call,
        st.sampled_from(["train", "loss", STATE, RESTORE]),
        st.just(3),
        st.binary(max_size=50),
    ),
)
def test_calls_come_through(number: int, call: Call) -> None:
    head, body = pack_call(number, call)
    assert body == call.order
    assert unpack_call(head) == CallHeader(number, call.name, len(body))


@given(
    st.binary(min_size=ANSWER_BYTES, max_size=ANSWER_BYTES),
    st.sampled_from(["train", "loss", STATE]),
    st.one_of(st.none(), st.integers(0, 5)),
)
def test_any_other_bytes_are_refused_or_harmless(header: bytes, name: str, kind: int | None) -> None:
    if kind is not None:  # as good as an answer
        header = (7).to_bytes(4, "little") + bytes([kind]) + header[5:10] + bytes(3) + header[13:]
    try:
        found = unpack_answer(header, 7, Call(name, 0), 1000)
    except AnswerError:
        return
    assert found.size <= 4000
    found.answer(b"?" * found.size)


def test_a_call_of_another_version_is_refused() -> None:
    with pytest.raises(EngineError, match="kind 200"):
        unpack_call(bytes([0, 0, 0, 0, 200]) + bytes(CALL_BYTES - 5))


def test_a_reason_cannot_command_the_terminal() -> None:
    head, body = pack_answer(1, Failure("gone\x1b[2J\n"))
    assert unpack_answer(head, 1, Call("loss", 0, b""), 0).answer(body) == Failure("gone [2J ")


def test_a_server_without_memory_for_a_message_loses_the_client_and_does_not_wait_for_it() -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    news: SimpleQueue[Any] = SimpleQueue()
    broken: Any = SimpleNamespace(send=no_memory, abort=lambda: news.put("aborted"))
    remote = gloo_remote.RemoteClient(0, broken, 100, lambda _, told: news.put(told))
    remote.ask(Call("loss", 0))
    assert news.get(timeout=SECONDS) == "aborted"
    assert news.get(timeout=SECONDS) == gloo_remote.ClientLost("the server had not enough memory for its messages.")
