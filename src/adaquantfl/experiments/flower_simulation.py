"""The process of a simulated run: Flower's simulation engine, and Ray under it, for as long as one run takes."""

from __future__ import annotations

import sys

from flwr.server.superlink.fleet.vce.backend.backend import BackendConfig
from flwr.simulation import run_simulation

from ..engines.flower.client import app as client_app
from .flower_app import server_app
from .flower_link import ServerEnd


def main(clients: int, workers: int) -> None:
    """Play what the command asks for with `clients` nodes, `workers` of them at a time."""
    link = ServerEnd.connect()
    assert link is not None, "started by flower_run"
    backend: BackendConfig = {
        "init_args": {"num_cpus": workers, "_node_ip_address": "127.0.0.1"},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server_app(link, workers), client_app, clients, backend_config=backend)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
