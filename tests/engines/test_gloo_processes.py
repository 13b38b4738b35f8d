"""The gloo engine with real processes: the local engine's model, whatever becomes of them, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adaquantfl.engines.gloo.crew import COMMAND
from adaquantfl.engines.gloo.launch import start_here
from adaquantfl.engines.gloo.server import GlooEngine
from adaquantfl.engines.local import LocalEngine
from adaquantfl.errors import EngineError
from adaquantfl.protocol.messages import Absence, Model, Plan, Reply
from adaquantfl.protocol.server import RunState
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import run
from support.processes import alive, children, wait_until

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

    def train(self, model: Model, plan: Plan, clients: Sequence[int] | None = None) -> Iterator[Reply | Absence]:
        for reply in super().train(model, plan, clients):
            yield Absence(reply.client, "") if self.absent.get(plan.round + 1) == reply.client else reply


# What client 1 does in each round, and the words that the history has for it.
FAULTS = {
    2: ("raise", "it raised RuntimeError: no room on the device (unruly_client.py, line"),
    3: ("corrupt", "refused. The checksum does not match"),
    4: ("truncated", "refused. The checksum does not match: the frame was truncated"),
    5: ("dimension", "refused. The frame has dimension 7, expected 25,450"),
    6: ("NaN scale", "refused. A scale is negative, NaN"),
    7: ("enormous", "above 20 times the median of the round"),
    8: ("slow", "no answer within round_timeout = 8 s."),
    9: ("", "still busy with round 8"),
    11: ("die", "its process has ended (killed by signal 9)."),
    12: ("", "its process has ended (killed by signal 9)."),
}


@pytest.mark.slow
def test_a_run_goes_on_without_a_client_that_does_wrong_and_with_it_when_it_does_right(tmp_path: Path) -> None:
    config = load_config(
        "demo",
        {**SETTINGS, "rounds": 13, "evaluate_every": 100, "method": "2bit", "min_clients": 2, "round_timeout": 8.0}
        | {"max_update_norm": "20x"},
    )
    faults = json.dumps({1: {number: fault for number, (fault, _) in FAULTS.items() if fault}})
    engine: GlooEngine | None = None
    again: subprocess.Popen[bytes] | None = None

    def connect(config: Config) -> GlooEngine:
        nonlocal engine
        engine = start_here(config, (sys.executable, str(UNRULY), faults))
        return engine

    def observe(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        nonlocal again
        assert engine is not None
        if state.round == 9:  # until the slow client is done
            wait_until(lambda: not engine._events.empty(), 20, "the late answer has come")
        if state.round == 12:  # client 1 is started again
            port = str(engine.store.port)
            again = subprocess.Popen([*COMMAND, port, "1"], stdin=subprocess.PIPE)
            wait_until(lambda: not engine._events.empty(), 60, "client 1 has joined again")

    try:
        summary = run(config, tmp_path / "gloo", observe, connect)
        assert children(os.getpid()) in ([], [again.pid if again else 0])
        assert again is not None
        assert again.wait(20) == 0
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
    with pytest.raises(EngineError, match=r"clients 0, 1, 2: its process ended before it joined \(exit code 3\)"):
        run(config, tmp_path / "run", connect=partial(start_here, command=command))
    assert children(os.getpid()) == []


class Command:
    """`adaquantfl run ... --engine gloo` as a process, and the processes that it started."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "adaquantfl", "run", *arguments, "--engine", "gloo"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.clients: list[int] = []

    def wait_for_round(self, out: Path, number: int) -> None:
        wait_until(
            lambda: len(lines_of(out)) >= number or self.process.poll() is not None, 120, f"round {number} is over"
        )
        self.clients = children(self.process.pid)
        assert len(self.clients) == 2, self.process.communicate(timeout=60)

    def end(self) -> tuple[int, str]:
        """The exit code and what was said, when everything that it started is gone."""
        _, said = self.process.communicate(timeout=120)
        wait_until(lambda: not any(map(alive, self.clients)), 10, "no client is left")
        return self.process.returncode, said


@pytest.mark.slow
def test_a_run_that_is_stopped_in_every_way_ends_in_the_local_engine_s_model(tmp_path: Path) -> None:
    changes = {**SETTINGS, "clients": 2, "rounds": 12, "tau": 100, "evaluate_every": 3, "checkpoint_every": 2}
    settings = [f"--set={key}={value}" for key, value in changes.items()]
    out = tmp_path / "gloo"

    first = Command("demo", *settings, "--out", str(out))
    first.wait_for_round(out, 2)
    first.process.send_signal(signal.SIGINT)
    code, said = first.end()
    assert code == 130
    assert f"Stopped. Go on with: adaquantfl run --resume {out} --engine gloo" in said

    second = Command("--resume", str(out))
    second.wait_for_round(out, 5)
    os.kill(second.clients[1], signal.SIGKILL)
    code, said = second.end()
    assert code == 1
    assert re.search(r"1 of 2 clients answered, but all of them are needed .* its process has ended \(killed by", said)
    assert f"The finished rounds are kept. Go on with: adaquantfl run --resume {out} --engine gloo" in said

    third = Command("--resume", str(out))
    third.wait_for_round(out, 8)
    third.process.kill()
    code, said = third.end()
    assert code == -signal.SIGKILL
    assert said.count("the server's process is gone") == 2

    last = Command("--resume", str(out))
    last.wait_for_round(out, 9)
    code, said = last.end()
    assert code == 0, said
    assert "Fatal" not in said

    summary = json.loads((out / "summary.json").read_text())
    local = run(load_config("demo", changes), tmp_path / "local")
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
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

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
    said = [agent.communicate(timeout=200)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    local = run(load_config("demo", changes), tmp_path / "local")
    assert json.loads((tmp_path / "gloo" / "summary.json").read_text())["model_sha256"] == local["model_sha256"]


@pytest.mark.slow
def test_processes_started_by_hand_go_on_without_one_and_take_it_back(tmp_path: Path, launched: Launched) -> None:
    out = tmp_path / "run"
    changes = {**SETTINGS, "clients": 2, "rounds": 400, "tau": 30, "min_clients": 1, "evaluate_every": 1000}
    settings = [f"--set={key}={value}" for key, value in changes.items()]
    command = (sys.executable, "-m", "adaquantfl", "run", "demo", *settings, "--engine", "gloo", "--out", str(out))
    environment = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    server, first, second = (launched.start(*command, RANK=str(rank), **environment) for rank in range(3))

    def missing() -> list[bool]:
        return ["missing" in line for line in lines_of(out)]

    wait_until(lambda: len(missing()) > 2, 120, "rounds are played")
    second.kill()
    wait_until(lambda: any(missing()), 60, "a round went on without client 1")
    again = launched.start(*command, RANK="2", **environment)
    wait_until(lambda: not missing()[-1], 120, "client 1 takes part again")
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 130
    for client in (first, again):
        client.wait(60)
    assert "its connection is lost" in next(line["missing"]["1"] for line in lines_of(out) if "missing" in line)
