"""A Flower deployment by hand, step by step as docs/how-to/hosts.md has it, on this machine's loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from adaquantfl.engines.flower.local_processes import LocalProcesses, free_ports
from support.processes import HANG_SECONDS, wait_until

UNRULY = str(Path(__file__).parent / "unruly_node.py")


class Hosts:
    """A SuperLink, and nodes that come and go."""

    def __init__(self, processes: LocalProcesses, clients: int, secure: list[str] | None = None) -> None:
        self.processes, self.clients = processes, clients
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        call = ["flower-superlink", "--disable-runtime-dependency-installation", *(secure or ["--insecure"])]
        processes.start("superlink", [*call, "--host", "127.0.0.1", "--port", str(port)])
        processes.await_port("superlink", port, HANG_SECONDS)

    def node(self, client: int, *more: str) -> None:
        """Start a client's node as a user does."""
        options = ["--superlink", self.address, "--client", str(client), "--clients", str(self.clients)]
        self.processes.start(f"node-{client}", ["adaquantfl", "flower", "node", *options, *(more or ["--insecure"])])

    def unruly(self, client: int, fault: str) -> None:
        """Start one that does wrong."""
        config = f"partition-id={client} num-partitions={self.clients}"
        call = [sys.executable, UNRULY, fault, "--insecure", "--superlink", self.address, "--node-config", config]
        self.processes.start(f"node-{client}", call)

    def plain(self, client: int, port: int) -> None:
        """Flower's own SuperNode, which starts a process for every message."""
        config = f"partition-id={client} num-partitions={self.clients}"
        call = ["flower-supernode", "--insecure", "--superlink", self.address, "--port", str(port)]
        self.processes.start(f"node-{client}", [*call, "--node-config", config])

    def kill(self, client: int) -> None:
        """Pull a host's plug: no goodbye to the SuperLink."""
        os.killpg(self.processes._processes[f"node-{client}"].pid, signal.SIGKILL)

    def run(self, connection: str = "insecure = true", **config: str) -> None:
        """Start a run of our app."""
        flower = self.processes.path / "flwr"
        flower.mkdir(exist_ok=True)
        (flower / "config.toml").write_text(f'[superlink.there]\naddress = "{self.address}"\n{connection}\n')
        app = self.processes.path / "app"
        if not app.exists():
            self.processes.start("adaquantfl", ["adaquantfl", "flower", "app", str(app)])
            self.processes.finish("adaquantfl", HANG_SECONDS)
        wanted = " ".join(f'{key}="{value}"' for key, value in config.items())
        self.processes.start("flwr", ["flwr", "run", str(app), "there", "--run-config", wanted])
        self.processes.finish("flwr", HANG_SECONDS)

    def stop(self) -> None:
        """Stop the run as a user does."""
        (run,) = re.findall(r"started run (\d+)", self.processes.printed("flwr"))
        self.processes.start("stop", ["flwr", "stop", run, "there"])
        self.processes.finish("stop", HANG_SECONDS)


def history(out: Path) -> list[dict[str, Any]]:
    """The rounds that a run has written down so far."""
    path = out / "history.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def summary(out: Path) -> dict[str, Any]:
    """The summary of a run, when it is there."""
    wait_until((out / "summary.json").exists, HANG_SECONDS, f"a summary in {out}")
    return dict(json.loads((out / "summary.json").read_text()))
