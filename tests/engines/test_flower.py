"""The Flower engine: the local engine's model, bit for bit, and every fault in the history. Most tests need no Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import flwr.simulation
import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from adaquantfl.engines import flower
from adaquantfl.engines.flower import FlowerEngine
from adaquantfl.engines.launch import launch
from adaquantfl.errors import EngineError
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import Request
from support.fake_flower import FakeGrid, carry
from support.processes import HANG_SECONDS, children, wait_until
from support.small_runs import history, interrupt_after

pytestmark = pytest.mark.timeout(HANG_SECONDS)


def small(**changes: Any) -> Config:
    settings = {"model": "mlp", "clients": 3, "tau": 2, "rounds": 3, "loss_samples": 32, "evaluate_every": 2}
    return load_config("demo", {**settings, "workers": 1, **changes})


def local_model(config: Config, out: Path) -> str:
    return str(Request(out / "local", config).play()["model_sha256"])


class Nodes(FakeGrid):
    """Nodes in this process that run our ClientApp. spoil: client -> what becomes of its replies, None for nothing."""

    def __init__(self, clients: int) -> None:
        super().__init__([])
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.contexts = [
            Context(1, 1000 + client, {"partition-id": client}, RecordDict(), {}) for client in range(clients)
        ]
        self.spoil: dict[int, Callable[[Message], Message | None]] = {}
        self._replies: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        return [context.node_id for context in self.contexts]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            self.sent.append(message)
            number, client = message.object_id, message.metadata.dst_node_id - 1000
            message.metadata.__dict__["_message_id"] = number
            delivered = carry(message)
            delivered.metadata.__dict__["_message_id"] = number
            reply: Message | None = carry(flower.app(delivered, self.contexts[client]))
            if "config" in message.content and client in self.spoil and reply is not None:
                reply = self.spoil[client](reply)
            if reply is not None:
                self._replies[number] = reply
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(number) for number in list(message_ids) if number in self._replies]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """Three nodes in place of Flower's simulation."""
    grid = Nodes(3)

    def simulate(server_app: Any, client_app: Any, count: int, **options: Any) -> None:
        assert client_app is flower.app
        server_app(grid, Context(1, 0, {}, RecordDict(), {}))

    monkeypatch.setattr(flwr.simulation, "run_simulation", simulate)
    return grid


RUNS: dict[str, dict[str, Any]] = {
    "the paper's rule": {"rule": "adaquant", "downlink": "exact"},
    "auto": {"rule": "auto"},
    "a median, clipped": {"rule": "8bit", "step": "median", "max_update_norm": "1x", "norm_action": "clip"},
    "a sample of clients": {"rule": "4bit", "clients_per_round": 2, "loss": "round"},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_in_the_local_engines_model(name: str, nodes: Nodes, tmp_path: Path) -> None:
    config = small(**RUNS[name])
    found = launch("flower", Request(tmp_path / "run", config))
    assert found is not None
    assert found["engine"] == "flower"
    assert found["model_sha256"] == local_model(config, tmp_path)
    assert found["wire_bytes_down"] == Request(tmp_path / "local").play()["wire_bytes_down"]


def test_a_client_that_lost_its_state_gets_the_whole_model_in_the_same_round(nodes: Nodes, tmp_path: Path) -> None:
    config = small(rule="adaquant", downlink="exact")

    def forget(_: Any, state: Any, line: Any) -> None:
        for context in nodes.contexts:
            context.state.clear()

    found = launch("flower", Request(tmp_path / "run", config), forget)
    assert found is not None
    assert found["model_sha256"] == local_model(config, tmp_path)


def raising(reply: Message) -> Message:
    error = Message(Error(2, "out of luck"), reply_to=reply)
    error.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return error


def emptied(reply: Message) -> Message:
    reply.content = RecordDict()
    return reply


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [(raising, "out of luck"), (emptied, "cannot be read"), (lambda reply: None, "no answer within round_timeout")],
)
def test_a_client_that_fails_is_missing_with_its_reason(
    spoil: Any, reason: str, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.spoil[1] = spoil
    monkeypatch.setattr(flower, "_REPLY_SECONDS", 0.0)  # the nodes answer at once, or never
    launch("flower", Request(tmp_path / "run", small(min_clients=2, rounds=1, round_timeout=1.0, workers=3)))
    (line,) = history(tmp_path / "run")
    assert line["clients"] == 2
    assert reason in line["missing"]["1"]


def test_a_stopped_run_resumes_to_the_same_model(nodes: Nodes, tmp_path: Path) -> None:
    config = small(rule="adaquant", downlink="exact")
    with pytest.raises(KeyboardInterrupt):
        launch("flower", Request(tmp_path / "run", config), interrupt_after(1))
    found = launch("flower", Request(tmp_path / "run"))
    assert found is not None
    assert found["model_sha256"] == local_model(config, tmp_path)


def test_a_simulation_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("Ray is not here")

    monkeypatch.setattr(flwr.simulation, "run_simulation", fail)
    monkeypatch.setattr(flower, "_START_SECONDS", 1.0)
    with pytest.raises(EngineError, match="Ray is not here"):
        FlowerEngine(small())


# ------------------------------------------------------------------------------------------------- with Ray


@pytest.mark.slow
def test_a_simulated_run_ends_in_the_same_model_and_leaves_nothing_behind(tmp_path: Path) -> None:
    config, path = small(workers=2), os.environ.get("PYTHONPATH")
    found = launch("flower", Request(tmp_path / "run", config))
    assert found is not None
    assert found["model_sha256"] == local_model(config, tmp_path)
    assert os.environ.get("PYTHONPATH") == path
    wait_until(lambda: not children(os.getpid()), 30, "Ray's processes end")


@pytest.mark.slow
def test_a_worker_that_hangs_costs_its_client_and_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_PID", str(os.getpid()))
    task = tmp_path / "mine.py"
    task.write_text(HANGING, encoding="utf-8")
    settings = {"clients": 3, "rounds": 1, "tau": 1, "min_clients": 2, "workers": 1, "round_timeout": 5.0}
    began = time.monotonic()
    launch("flower", Request(tmp_path / "run", load_config(f"{task}:task", settings)))
    assert "no answer within" in history(tmp_path / "run")[0]["missing"]["1"]
    assert time.monotonic() - began < 200
    wait_until(lambda: not children(os.getpid()), 30, "Ray's processes end")


HANGING = """
import os
import time
import torch
from torch import nn
import adaquantfl as aq

class Rows(torch.utils.data.Dataset):
    def __init__(self, value):
        self.value = value
    def __len__(self):
        return 20
    def __getitem__(self, i):
        return torch.full((4,), self.value), 0

class Net(nn.Linear):
    def forward(self, x):
        if (x == 1.0).any() and os.getpid() != int(os.environ["SERVER_PID"]):
            time.sleep(3600)
        return super().forward(x)

def task(clients, seed):
    rows = [Rows(float(c)) for c in range(clients)]
    return aq.OwnTask(model=lambda: Net(4, 2), loss=nn.CrossEntropyLoss(), train=rows)
"""
