"""A run on Flower from start to end: its processes are started here, followed, and ended with the run."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from ...errors import EngineError
from ...runs.config import Config
from ...runs.loop import Observer, Request
from ...threads import cores
from .launch_link import Command
from .local_processes import LocalProcesses, free_ports

_POLL_SECONDS = 0.2  # between a SuperNode's questions for messages
_REVIVE_AFTER = 5.0  # seconds; a SuperNode that ends sooner than this would only end again


def simulate(request: Request, observer: Observer | None = None) -> dict[str, Any]:
    """Play a run on Flower's simulation engine: Ray's workers on this machine take turns at being the clients."""
    prepared = _prepare(request)
    if isinstance(prepared, dict):
        return prepared
    workers = min(prepared.workers or cores(), prepared.clients)
    with LocalProcesses() as processes, closing(Command(processes.path, request)) as command:
        module = "adaquantfl.engines.flower.simulation"
        call = [sys.executable, "-m", module, str(prepared.clients), str(workers)]
        processes.start("simulation", call, command.environment)
        return command.follow(observer, check=lambda: processes.check("simulation"))


def deploy(request: Request, observer: Observer | None = None) -> dict[str, Any]:
    """Play a run on a SuperLink and a SuperNode for each client, all on this machine's loopback."""
    prepared = _prepare(request)
    if isinstance(prepared, dict):
        return prepared
    with LocalProcesses() as processes, closing(Command(processes.path, request)) as command:
        deployment = Deployment(processes, prepared.clients)
        deployment.start(command.environment)
        return command.follow(observer, deployment.check)


class Deployment:
    """A SuperLink, SuperNodes and our app on them. A SuperNode that dies is started again, as a service would be."""

    def __init__(self, processes: LocalProcesses, clients: int) -> None:
        self._processes, self._clients = processes, clients
        (self._port,) = free_ports(1)
        self.address = f"127.0.0.1:{self._port}"
        self._started: dict[int, float] = {}

    def start(self, environment: dict[str, str], isolation: str = "subprocess") -> None:
        """Start everything. environment: where the server app reports to. isolation: "process" if we start that."""
        processes = self._processes
        write_app(processes.path / "app")
        flower = processes.path / "flwr"
        flower.mkdir()
        (flower / "config.toml").write_text(f'[superlink.here]\naddress = "{self.address}"\ninsecure = true\n')
        call = ["flower-superlink", "--insecure", "--isolation", isolation, "--disable-runtime-dependency-installation"]
        processes.start("superlink", [*call, "--host", "127.0.0.1", "--port", str(self._port)], environment)
        processes.await_port("superlink", self._port)
        for client in range(self._clients):
            self._start_node(client)
        processes.start("flwr", ["flwr", "run", str(processes.path / "app"), "here"])
        processes.finish("flwr", seconds=300)

    def address_for(self, client: int) -> str:
        """Where a client's node finds the SuperLink."""
        return self.address

    def check(self) -> None:
        """Start dead SuperNodes again; EngineError where the SuperLink is gone."""
        self._processes.check("superlink")
        for client, started in list(self._started.items()):
            if not self._processes.alive(f"supernode-{client}") and time.monotonic() > started + _REVIVE_AFTER:
                self._start_node(client)

    def node_command(self, client: int) -> list[str]:
        """What a client's host runs."""
        call = [sys.executable, "-m", "adaquantfl", "flower", "node", "--superlink", self.address_for(client)]
        call += ["--client", str(client), "--clients", str(self._clients)]
        return [*call, "--insecure", "--poll", str(_POLL_SECONDS)]

    def _start_node(self, client: int) -> None:
        self._started[client] = time.monotonic()
        self._processes.start(f"supernode-{client}", self.node_command(client))


def write_app(folder: Path) -> None:
    """The folder that `flwr run` takes: only a pyproject.toml, for the code is in this package."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_APP, encoding="utf-8")


_APP = """\
[project]
name = "adaquantfl-preset"
version = "1.0.0"
description = "A preset of AdaQuantFL on Flower."
license = "Apache-2.0"
dependencies = ["adaquantfl[train,flower]"]

[tool.flwr.app]
publisher = "adaquantfl"

[tool.flwr.app.components]
serverapp = "adaquantfl.engines.flower.server_app:app"
clientapp = "adaquantfl.engines.flower.client:app"

[tool.flwr.app.config]
preset = "demo"
set = ""
out = ""
resume = ""
"""


class _Needed(Exception):
    """The run needs its clients."""

    def __init__(self, config: Config) -> None:
        self.config = config


def _prepare(request: Request) -> Config | dict[str, Any]:
    """The configuration of a run that can be played, or the summary of one that is finished. Nothing is started."""
    try:
        from ...flower import requirement
    except ImportError as error:
        raise EngineError(str(error)) from None
    requirement.require_flwr()

    def connect(config: Config) -> NoReturn:
        raise _Needed(config)

    try:
        return request.play(connect=connect)
    except _Needed as needed:
        return needed.config
