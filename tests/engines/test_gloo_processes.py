"""The gloo engine with real processes: the local engine's model, whatever becomes of them, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adaquantfl.engines.calls import Call, Failure, Trained
from adaquantfl.engines.gloo.engine import GlooEngine
from adaquantfl.engines.gloo.launch import start_here
from adaquantfl.engines.local import LocalEngine
from adaquantfl.errors import EngineError
from adaquantfl.protocol.messages import Order
from adaquantfl.protocol.server import Server
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import run
from adaquantfl.runs.state import RunState
from support.processes import children, in_session, wait_until
from support.unruly_client import WAIT

SECONDS = 250.0  # for what must happen; a busy machine may need many of them
NEVER = 1_000_000  # rounds: a run that a test stops does not end before
UNRULY = Path(__file__).parents[1] / "support" / "unruly_client.py"
SETTINGS: dict[str, Any] = {
    "model": "mlp",
    "clients": 3,
    "tau": 2,
    "batch_size": 16,
    "loss_samples": 32,
    "partition": "dirichlet(0.5)",
}


def lines_of(out: Path) -> list[dict[str, Any]]:
    path = out / "history.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Without(LocalEngine):
    """The local engine, with some clients absent from some rounds: {round, counted from 1: client}."""

    def __init__(self, config: Config, absent: dict[int, int]) -> None:
        super().__init__(config)
        self.absent = absent

    def train(self, server: Server, orders: Mapping[int, bytes]) -> Iterator[tuple[int, Trained | Failure]]:
        for client, answer in super().train(server, orders):
            absent = self.absent.get(Order.unpack(orders[client]).round + 1) == client
            yield client, Failure("") if absent else answer


# What client 1 does in each round, and the words that the history has for it.
FAULTS = {
    2: ("raise", "it raised RuntimeError: no room on the device (unruly_client.py, line"),
    3: ("dimension", "refused. The frame has dimension 7, expected 25,450"),
    4: ("damaged reply", "refused. The reply is damaged"),
    5: (WAIT, "no answer within round_timeout = 600 s."),
    6: ("", "still busy with round 5"),
    8: ("die", "its process has ended (killed by signal 9)."),
    9: ("", "its process has ended (killed by signal 9)."),
}


@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_a_run_goes_on_without_a_client_that_does_wrong_and_with_it_when_it_does_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config("demo", {**SETTINGS, "rounds": 11, "evaluate_every": 100, "rule": "2bit", "min_clients": 2})
    gate = tmp_path / "gate"
    faults = {number: fault + str(gate) if fault == WAIT else fault for number, (fault, _) in FAULTS.items() if fault}
    command = (sys.executable, str(UNRULY), json.dumps({1: faults}))
    engine: GlooEngine | None = None
    again: subprocess.Popen[bytes] | None = None
    patient = GlooEngine._deadline
    played, others = 0, set(children(os.getpid()))

    def deadline(engine: GlooEngine, call: Call) -> float:
        """The time is up at once for the call that is not answered before the gate opens, and for no other."""
        slow = call.name == "train" and call.client == 1 and played + 1 == 5
        return patient(engine, call) - (engine.config.round_timeout if slow else 0)

    monkeypatch.setattr(GlooEngine, "_deadline", deadline)

    def connect(config: Config) -> GlooEngine:
        nonlocal engine
        engine = start_here(config, command)
        return engine

    def observe(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        nonlocal again, played
        played = state.round
        assert engine is not None
        if state.round == 6:
            gate.touch()
            wait_until(lambda: not engine._events.empty(), SECONDS, "the late answer has come")
        if state.round == 9:  # client 1 is started again
            again = subprocess.Popen([*command, str(engine.store.port), "1"])
            wait_until(lambda: not engine._events.empty(), SECONDS, "client 1 has joined again")

    try:
        summary = run(config, tmp_path / "gloo", observe, connect)
        assert again is not None
        assert set(children(os.getpid())) - others <= {again.pid}
        assert again.wait(SECONDS) == 0
    finally:
        if again is not None:
            again.kill()
            again.wait()
    for line in lines_of(tmp_path / "gloo"):
        if line["round"] not in FAULTS:
            assert "missing" not in line
            continue
        assert line["clients"] == 2
        assert list(line["missing"]) == ["1"]
        assert FAULTS[line["round"]][1] in line["missing"]["1"]
    absent = dict.fromkeys(FAULTS, 1)
    same = run(replace(config, workers=1), tmp_path / "local", connect=partial(Without, absent=absent))
    assert summary["model_sha256"] == same["model_sha256"]


def test_a_client_that_cannot_start_is_named(tmp_path: Path) -> None:
    config = load_config("demo", {**SETTINGS, "rounds": 1})
    command = (sys.executable, "-c", "raise SystemExit(3)")
    others = children(os.getpid())
    with pytest.raises(EngineError, match=r"clients 0, 1, 2: its process ended before it joined \(exit code 3\)"):
        run(config, tmp_path / "run", connect=partial(start_here, command=command))
    assert set(children(os.getpid())) <= set(others)  # a process of an earlier test may end meanwhile


class Command:
    """`adaquantfl run ... --engine gloo` as a process, and the processes that it starts: all of one session."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "adaquantfl", "run", *arguments, "--engine", "gloo"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def wait_for_round(self, out: Path, number: int) -> list[int]:
        """The clients' processes, when this round is over."""
        wait_until(
            lambda: len(lines_of(out)) >= number or self.process.poll() is not None, SECONDS, f"round {number} is over"
        )
        clients = children(self.process.pid)
        assert len(clients) == 2, self.process.communicate(timeout=SECONDS)
        return clients

    def end(self) -> tuple[int, str]:
        """The exit code and what was said, when everything that it started is gone."""
        _, said = self.process.communicate(timeout=SECONDS)
        wait_until(lambda: not in_session(self.process.pid), SECONDS, "no client is left")
        return self.process.returncode, said


@pytest.fixture
def command() -> Iterator[Callable[..., Command]]:
    """Commands that have ended at the end of a test, whatever becomes of it; their clients end with them."""
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_that_is_stopped_in_every_way_ends_in_the_local_engine_s_model(
    tmp_path: Path, command: Callable[..., Command]
) -> None:
    changes = {**SETTINGS, "clients": 2, "rounds": NEVER, "tau": 100, "evaluate_every": 3, "checkpoint_every": 2}
    settings = [f"--set={key}={value}" for key, value in changes.items()]
    out = tmp_path / "gloo"

    first = command("demo", *settings, "--out", str(out))
    first.wait_for_round(out, 2)
    first.process.send_signal(signal.SIGINT)
    code, said = first.end()
    assert code == 130
    assert f"Stopped. Resume with: adaquantfl run --resume {out} --engine gloo" in said

    second = command("--resume", str(out))
    clients = second.wait_for_round(out, len(lines_of(out)) + 3)
    os.kill(clients[1], signal.SIGKILL)
    code, said = second.end()
    assert code == 1
    assert re.search(r"1 of 2 clients answered, but all of them are needed .* its process has ended \(killed by", said)
    assert f"The finished rounds are kept. Resume with: adaquantfl run --resume {out} --engine gloo" in said

    third = command("--resume", str(out))
    third.wait_for_round(out, len(lines_of(out)) + 3)
    third.process.kill()
    code, said = third.end()
    assert code == -signal.SIGKILL
    for client in range(2):  # its own end of the connection may close before it sees that the process is gone
        assert re.search(rf"[Cc]lient {client} ends: the server('s process is gone| has closed the connection)", said)

    rounds = len(lines_of(out)) + 3
    code, said = command("--resume", str(out), "--set", f"rounds={rounds}").end()
    assert code == 0, said
    assert "Fatal" not in said

    summary = json.loads((out / "summary.json").read_text())
    local = run(load_config("demo", {**changes, "rounds": rounds}), tmp_path / "local")
    assert summary["engine"] == "gloo"
    assert summary["model_sha256"] == local["model_sha256"]
    assert summary["final_loss"] == local["final_loss"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Launched:
    """Processes that must all be gone at the end of a test."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        env = {**os.environ, **environment}
        self.processes.append(subprocess.Popen(command, env=env, start_new_session=True, **said))
        return self.processes[-1]

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def launched() -> Iterator[Launched]:
    everything = Launched()
    yield everything
    everything.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_launchers_make_one_run(tmp_path: Path, launched: Launched) -> None:
    changes = {**SETTINGS, "rounds": 4}
    settings = [f"--set={key}={value}" for key, value in changes.items()]
    agents = [
        launched.start(
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", f"--node-rank={node}"),
            *("--master-addr=127.0.0.1", f"--master-port={port}", "-m", "adaquantfl", "run", "demo", *settings),
            *("--engine", "gloo", "--out", str(tmp_path / "gloo")),
        )
        for port in [free_port()]
        for node in range(2)
    ]
    said = [agent.communicate(timeout=SECONDS)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    for client in range(3):
        for round in range(1, 5):
            assert re.search(rf"Client {client}: round {round}, [\d,]+ B received, [\d,]+ B sent", "".join(said))
    local = run(load_config("demo", changes), tmp_path / "local")
    assert json.loads((tmp_path / "gloo" / "summary.json").read_text())["model_sha256"] == local["model_sha256"]


ENDLESS = """
import os
import time
from pathlib import Path
import torch
import adaquantfl as aq

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        if os.environ["RANK"] != "0":
            Path(os.environ["WORKING"]).touch()
            time.sleep(1_000_000)
        return torch.zeros(2), 0

def task(clients, seed):
    return aq.OwnTask(model=lambda: torch.nn.Linear(2, 2), loss=torch.nn.CrossEntropyLoss(), test=None,
                      train=[Rows() for _ in range(clients)])
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("phase", ["working", "joining"])
def test_a_client_ends_with_its_server_whatever_it_is_doing(tmp_path: Path, launched: Launched, phase: str) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    clients = 1 if phase == "working" else 2  # the second one never comes, so that the first one waits for its call
    command = (sys.executable, "-m", "adaquantfl", "run", str(tmp_path / "endless.py:task"), "--engine", "gloo")
    settings = (f"--set=clients={clients}", "--set=round_timeout=1000000", "--out", str(tmp_path / "run"))
    world = {"WORLD_SIZE": str(clients + 1), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    world["WORKING"] = str(tmp_path / "working")
    server, client = (launched.start(*command, *settings, RANK=str(rank), **world) for rank in (0, 1))
    if phase == "working":
        wait_until((tmp_path / "working").exists, SECONDS, "the client is in the middle of a call")
    else:
        wait_until((tmp_path / "run" / "config.toml").exists, SECONDS, "the server waits for its clients")
    server.kill()
    said, _ = client.communicate(timeout=SECONDS)
    assert client.returncode == 1
    assert re.search(r"lient 0 (ends: the server|could not join)|store at 127.0.0.1:\d+ was not reached", said), said
    assert "Traceback" not in said
