"""A run on Flower from start to end: its processes are started here, followed, and ended with the run."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

from ...errors import EngineError
from ...requirement import FLOWER
from ...runs.config import Config
from ...runs.loop import Observer, Request
from ...threads import cores
from .launch_link import Command
from .local_processes import LocalProcesses, free_ports

_POLL_SECONDS = 0.2  # between a SuperNode's questions for messages
_REVIVE_AFTER = 5.0  # seconds; a SuperNode that ends sooner than this would only end again

# Starts what a run needs; environment: where the server app reports to. Returns a check that raises where it has ended.
Start = Callable[[LocalProcesses, Config, dict[str, str]], Callable[[], None]]


def simulate(request: Request, observer: Observer | None = None) -> dict[str, Any]:
    """Play a run on Flower's simulation engine: Ray's workers on this machine take turns at being the clients."""

    def start(processes: LocalProcesses, config: Config, environment: dict[str, str]) -> Callable[[], None]:
        workers = min(config.workers or cores(), config.clients)
        module = "adaquantfl.engines.flower.server_app"
        processes.start("simulation", [sys.executable, "-m", module, str(config.clients), str(workers)], environment)
        return lambda: processes.check("simulation")

    return _play(request, observer, start)


def deploy(request: Request, observer: Observer | None = None) -> dict[str, Any]:
    """Play a run on a SuperLink and a SuperNode for each client, all on this machine's loopback."""

    def start(processes: LocalProcesses, config: Config, environment: dict[str, str]) -> Callable[[], None]:
        deployment = Deployment(processes, config.clients)
        deployment.start(environment)
        return deployment.check

    return _play(request, observer, start)


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
    shutil.copyfile(Path(__file__).with_name("app.toml"), folder / "pyproject.toml")


class _ClientsNeeded(Exception):
    """The run needs its clients. Its argument is the configuration."""


def _play(request: Request, observer: Observer | None, start: Start) -> dict[str, Any]:
    """The summary of a run whose server app is another process. Nothing is started for a run that is finished."""
    try:
        FLOWER.require()
    except ImportError as error:
        raise EngineError(str(error)) from None

    def connect(config: Config) -> NoReturn:
        raise _ClientsNeeded(config)

    try:
        return request.play(connect=connect)
    except _ClientsNeeded as needed:
        config = needed.args[0]
    with LocalProcesses() as processes, closing(Command(processes.path, request)) as command:
        return command.follow(observer, start(processes, config, command.environment))
