"""The process of a simulated run: Flower's simulation engine, and Ray under it, for as long as one run takes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import ray
from flwr.simulation import run_simulation

from ...errors import EngineError
from .client import app as client_app
from .launch_link import ServerEnd
from .server_app import server_app

_ATTEMPTS = 3  # at starting Ray, which gives its own processes 30 s: too few on a busy machine


def main(clients: int, workers: int) -> None:
    """Play what the command asks for with `clients` nodes, `workers` of them at a time."""
    link = ServerEnd.connect()
    assert link is not None, "started by flower_run"
    try:
        start_ray(workers)
        one_each = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server_app(link, workers), client_app, clients, backend_config=one_each)  # type: ignore[arg-type]
    except Exception as error:
        with suppress(OSError):
            link.fail(error)
        os._exit(1)  # Flower's threads would wait for nodes that never come


def start_ray(workers: int) -> None:
    """Ray on this machine's loopback, with nothing but what Flower needs."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
            return
        except Exception as error:
            ray.shutdown()
            if attempt == _ATTEMPTS:
                raise EngineError(f"Ray does not start on this machine: {error}") from error


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
