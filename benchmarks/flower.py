"""What Flower adds to a round of the CNN: seconds, and where they go; bytes on the sockets of its nodes.

Rounds are played in turn with the local engine's, as in engines.py, and recorded beside the other engines'. A
deployment's nodes reach the SuperLink through a proxy that counts bytes and notes when messages are taken and answered.

    python benchmarks/flower.py [--engine flower]... [--out evidence/records/benchmarks/engines.json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from flwr.app import Context
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

import engines
from adaquantfl.engines.flower.client import app as client_app
from adaquantfl.engines.flower.engine import FlowerEngine
from adaquantfl.engines.flower.launch import Deployment
from adaquantfl.engines.flower.local_processes import QUIET, LocalProcesses, free_ports
from adaquantfl.engines.flower.resident import runtime_client
from adaquantfl.engines.flower.server_app import start_ray
from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs.loop import Run
from adaquantfl.threads import cores
from common import record
from proxy import Proxy


class Measured(Deployment):
    """Nodes that reach their SuperLink through a proxy each."""

    def __init__(self, processes: LocalProcesses, clients: int) -> None:
        super().__init__(processes, clients)
        host, port = self.address.split(":")
        self.proxies = [Proxy((host, int(port))) for _ in range(clients)]

    def address_for(self, client: int) -> str:
        return self.proxies[client].address

    def bytes(self) -> tuple[int, int]:
        """Up and down so far, over all nodes."""
        return sum(proxy.up for proxy in self.proxies), sum(proxy.down for proxy in self.proxies)


class Plain(Measured):
    """Flower's own SuperNodes, which start a process for every message."""

    def node_command(self, client: int) -> list[str]:
        (port,) = free_ports(1)
        call = ["flower-supernode", "--insecure", "--superlink", self.address_for(client), "--port", str(port)]
        return [*call, "--node-config", f"partition-id={client} num-partitions={len(self.proxies)}"]


def simulated() -> dict[str, Any]:
    """Flower's simulation, in this process: the measurement is its ServerApp."""
    config, found = engines.preset(), dict[str, Any]()
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        local = LocalEngine(config)
        try:
            found["overhead"] = engines.overhead(FlowerEngine(config, grid, local.workers), local)
        finally:
            local.close()

    with tempfile.TemporaryDirectory(prefix="aq") as temporary:
        os.environ.update(QUIET, RAY_TMPDIR=temporary)
        start_ray(cores())
        run_simulation(app, client_app, config.clients, backend_config={"client_resources": {"num_cpus": 1}})
    return found


@contextmanager
def deployed(kind: type[Measured]) -> Iterator[tuple[FlowerEngine, Measured]]:
    """An engine in this process, and the deployment that it is on."""
    config = engines.preset()
    with LocalProcesses() as processes:
        deployment = kind(processes, config.clients)
        deployment.start({}, isolation="process")
        with server_app_grid(deployment.address) as grid:
            yield FlowerEngine(config, grid), deployment


@contextmanager
def server_app_grid(address: str) -> Iterator[Grid]:
    """Take the run's server app upon ourselves."""
    with runtime_client(address) as superexec:
        while not (
            token := superexec.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])).token
        ):
            time.sleep(0.2)
    grid = HttpGrid(address, insecure=True, token=token)
    heart = HeartbeatSender(make_task_heartbeat_fn_http(grid._runtime_client))
    heart.start()
    task = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = (
        task.task_id,
        task.run.run_id,
        task.context.node_id,
    )
    grid.set_run(run_from_proto(task.run))
    try:
        yield grid
    finally:
        heart.stop()
        grid.close()


def breakdown(engine: FlowerEngine, deployment: Measured, rounds: int = 5) -> dict[str, float]:
    """A round's seconds: until a node has taken its message, until its answer leaves, until the server has it."""
    parts: dict[str, list[float]] = {"until_taken": [], "at_the_node": [], "of_that_work": [], "until_received": []}
    for _ in range(rounds):
        server = engines.fresh_server(engine, 3)
        began = time.time()
        _, answers = engines.exchange(engine, server)
        ended = time.time()
        taken = [proxy.first("pull-object", began) for proxy in deployment.proxies]
        left = [proxy.first("push-messages", began) for proxy in deployment.proxies]
        parts["until_taken"].append(median(when - began for when in taken))
        parts["at_the_node"].append(median(after - before for before, after in zip(taken, left, strict=True)))
        parts["of_that_work"].append(median(answer.train_seconds + answer.encode_seconds for answer in answers))
        parts["until_received"].append(ended - max(left))
    return {f"{name}_seconds": median(values) for name, values in parts.items()}


def bytes_by_level(engine: FlowerEngine, deployment: Measured) -> list[dict[str, Any]]:
    """One round for each number of levels, with a model that the clients do not have yet."""
    rows = []
    for s in engines.LEVELS:
        server, before = engines.fresh_server(engine, s), deployment.bytes()
        facts, answers = engines.exchange(engine, server)
        rows.append(engines.traffic(facts, answers, *since(before, deployment)))
    return rows


def bytes_of_the_exact_downlink(engine: FlowerEngine, deployment: Measured) -> dict[str, Any]:
    """The second round on: clients hold a model, and get what leads to the next."""
    run = Run(replace(engines.preset(), downlink="exact", method="adaquant"), engine)
    run.play_round(lambda line: None)
    before = deployment.bytes()
    line = run.play_round(lambda line: None)
    up, down = since(before, deployment)
    return {"s": line["s"], "clients": line["clients"], "socket_bytes_up": up, "socket_bytes_down": down}


def idle_bytes(engine: FlowerEngine, deployment: Measured, seconds: float = 20.0) -> dict[str, float]:
    """What a node's questions for messages cost while there are none."""
    before = deployment.bytes()
    time.sleep(seconds)
    up, down = since(before, deployment)
    nodes = seconds * engine.config.clients
    return {"up_bytes_a_second": up / nodes, "down_bytes_a_second": down / nodes}


def since(before: tuple[int, int], deployment: Measured) -> tuple[int, int]:
    up, down = deployment.bytes()
    return up - before[0], down - before[1]


def measure(name: str) -> Iterator[dict[str, Any]]:
    """The figures of an engine, part by part: minutes of work are not lost when a later part fails."""
    print(f"measuring {name} ...", file=sys.stderr)
    if name == "flower":
        yield simulated()
        return
    with deployed(Plain if name == "flower-supernode" else Measured) as (engine, deployment):
        if name == "flower-deployment":
            yield {"bytes": bytes_by_level(engine, deployment)}
            yield {"idle": idle_bytes(engine, deployment)}
            yield {"exact_downlink": bytes_of_the_exact_downlink(engine, deployment)}
        local = LocalEngine(engines.preset())
        try:
            yield {"overhead": engines.overhead(engine, local, PAIRS[name])}
        finally:
            local.close()
        yield {"breakdown": breakdown(engine, deployment)}


NAMES = ("flower", "flower-deployment", "flower-supernode")  # the last: with Flower's own SuperNodes
PAIRS = {"flower-deployment": 8, "flower-supernode": 3}  # the last takes a minute a round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=NAMES, help="default: all")
    parser.add_argument("--out", type=Path, help="also write the record to this JSON file")
    options = parser.parse_args()
    for name in options.engine or NAMES:
        for figures in measure(name):
            there = options.out and options.out.exists()
            known = json.loads(options.out.read_text())["engines"] if there else {}
            preset = "fmnist-cnn-iid on the bundled sample, method 2bit"
            record(options.out, {"preset": preset, "engines": {**known, name: {**known.get(name, {}), **figures}}})


if __name__ == "__main__":
    main()
