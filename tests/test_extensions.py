"""The recipes of CONTRIBUTING.md: rules, server steps, downlinks, engines and tasks that come from another package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.engines.launch import ENGINES, launch
from adaquantfl.protocol.downlink import DOWNLINKS
from adaquantfl.protocol.step import STEPS
from adaquantfl.rules.registry import RULES
from adaquantfl.runs.config import load_config
from adaquantfl.runs.loop import Request
from support import quadratic
from support.recipes import put as put_metadata
from support.recipes import recipe

SMALL = {"model": "mlp", "clients": 3, "rounds": 2, "tau": 1, "workers": 1, "loss_samples": 32, "evaluate_every": 2}

TASK = """
import torch
import adaquantfl as aq

def task(clients, seed):
    x = torch.randn(20 * clients, 5)
    parts = list(zip(x.chunk(clients), x.sum(1, keepdim=True).chunk(clients)))
    return aq.OwnTask(model=lambda: torch.nn.Linear(5, 1), loss=torch.nn.functional.mse_loss, train=parts)
"""


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Make an installed package with one module and one entry point."""
    tables = (RULES, STEPS, DOWNLINKS, ENGINES)

    def forget() -> None:
        for table in tables:  # other packages are looked for once; here they come and go
            table.forget()

    def put(group: str, name: str, attribute: str, source: str) -> None:
        module = f"outside_{group}"
        (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        put_metadata(tmp_path, module, {f"adaquantfl.{group}": {name: f"{module}:{attribute}"}})
        monkeypatch.syspath_prepend(str(tmp_path))
        forget()

    yield put
    forget()
    for module in [name for name in sys.modules if name.startswith("outside_")]:
        del sys.modules[module]


def test_a_rule_drives_a_server_as_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rule.py").write_text(recipe("rule"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    server = aq.Server(quadratic.start(), rule=importlib.import_module("my_rule").Halving(s0=1), seed=1)
    client, levels = aq.Client(0), []
    for loss in (2.0, 1.5, 0.9, 0.8, 0.4):
        server.receive(0, quadratic.answer(client, server.open([0], loss=loss)[0]))
        levels.append(server.close().facts["s"])
    assert levels == [1, 1, 2, 2, 4]


def test_a_rule_of_another_package_is_a_method(install: Install, tmp_path: Path) -> None:
    install("rules", "halving", "Halving", recipe("rule"))
    assert load_config("demo", {"rule": "halving"}).make_rule().name == "halving"
    record = aq.run("demo", tmp_path / "run", rule="halving", settings=SMALL)
    assert [line["s"] for line in record.history] == [1, 1]
    server = aq.Server(np.zeros(4, np.float32), rule=RULES.find("halving")())
    assert aq.Server.restore(server.state()).stages.rule.name == "halving"


def test_a_server_step_with_a_state_is_applied_kept_and_restored(install: Install) -> None:
    install("steps", "heavy-ball", "HeavyBall", recipe("step"))
    server = aq.Server(quadratic.start(), rule=aq.FullPrecision(), step="heavy-ball", downlink="exact")
    plain = aq.Server(quadratic.start(), rule=aq.FullPrecision(), downlink="exact")
    clients, others = ({n: aq.Client(n) for n in range(3)} for _ in range(2))
    before: Any = server.weights
    quadratic.play(server, clients, 1)
    quadratic.play(plain, others, 1)
    first: Any = server.weights
    np.testing.assert_array_equal(first["linear"], plain.weights["linear"])  # type: ignore[call-overload,index]
    server = aq.Server.restore(server.state())
    quadratic.play(server, clients, 1)
    velocity = server.current.trajectory.step["velocity"]
    assert np.abs(velocity).max() > 0
    # The second step is 0.9 of the first and the second update: it goes further than without momentum.
    quadratic.play(plain, others, 1)
    moved = [np.linalg.norm(one["linear"] - before["linear"]) for one in (server.weights, plain.weights)]  # type: ignore[call-overload,index]
    assert moved[0] > moved[1]


def test_a_downlink_of_another_package_brings_every_client_to_the_servers_model(install: Install) -> None:
    install("downlinks", "rounded", "Rounded", recipe("downlink"))
    server, clients = aq.Server(quadratic.start(), downlink="rounded"), {n: aq.Client(n) for n in range(3)}
    quadratic.play(server, clients, 3)
    for number in clients:
        order = server.order(number, evaluate=True)
        opened: Any = clients[number].open(order)
        np.testing.assert_array_equal(opened["linear"], server.weights["linear"])  # type: ignore[call-overload,index]
        np.testing.assert_array_equal(opened["linear"], np.round(opened["linear"], 3))


def test_an_engine_of_another_package_ends_in_the_same_model(install: Install, tmp_path: Path) -> None:
    install("engines", "two-players", "LAUNCHER", recipe("engine"))
    config = load_config("demo", {**SMALL, "downlink": "exact"})
    found = launch("two-players", Request(tmp_path / "theirs", config))
    assert found is not None
    assert found["engine"] == "two-players"
    assert found["model_sha256"] == Request(tmp_path / "ours", config).play()["model_sha256"]


def test_a_task_of_another_package_runs_by_its_name(install: Install, tmp_path: Path) -> None:
    install("tasks", "sums", "task", TASK)
    keys = {key: value for key, value in SMALL.items() if key != "model"}
    record = aq.run("sums", tmp_path / "run", settings=keys)
    assert record.summary is not None
    assert record.summary["rounds"] == 2
