"""Our part of a Flower round's time: the strategy's and the mod's own, next to the training of the example app.

Four clients of examples/flower, one after the other in this process, with the default settings: first the example's own
20 local steps, then one epoch (79 steps). The first two rounds, which load and warm up, do not count.
`share` is of the time of all; `share_in_parallel` is what it would be if the clients trained at the same time.

    python benchmarks/flower_share.py [--out evidence/records/benchmarks/flower_share.json]
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "flower"))

from fashion import client_app, task

from adaquantfl.flower import AdaQuantStrategy, quantize_mod
from common import options, record

CLIENTS, ROUNDS, LEFT_OUT, LR = 4, 12, 2, 0.05
STEPS = (20, 79)


class Clients(Grid):
    """Nodes in this process. Seconds of each round: mod, without the training inside it; train."""

    def __init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.mod: list[float] = []
        self.train: list[float] = []
        self.app = ClientApp(mods=[self._timed])
        self.app.train()(client_app.train)
        nodes = [{"partition-id": client, "num-partitions": CLIENTS} for client in range(CLIENTS)]
        self.contexts = {i + 1: Context(1, i + 1, node, RecordDict(), {}) for i, node in enumerate(nodes)}

    def _timed(self, message: Message, context: Context, call_next: Any) -> Message:
        def inner(message: Message, context: Context) -> Message:
            began = time.perf_counter()
            reply = call_next(message, context)
            self.train[-1] += time.perf_counter() - began
            return reply

        before, began = self.train[-1], time.perf_counter()
        reply = quantize_mod(message, context, inner)
        self.mod[-1] += time.perf_counter() - began - (self.train[-1] - before)
        return reply

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        messages = list(messages)
        if messages:  # there are none to evaluate
            self.mod.append(0.0)
            self.train.append(0.0)
        return [self.app(message, self.contexts[message.metadata.dst_node_id]) for message in messages]

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError


def measure(steps: int) -> dict[str, Any]:
    grid, net = Clients(), task.build()
    strategy = AdaQuantStrategy(FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS))
    config = ConfigRecord({"lr": LR, "local-steps": steps})
    result = strategy.start(grid, ArrayRecord(net.state_dict()), num_rounds=ROUNDS, train_config=config)
    server = [float(result.train_metrics_clientapp[k + 1]["aq_seconds"]) for k in range(ROUNDS)]
    rounds = list(zip(server, grid.mod, grid.train, strict=True))[LEFT_OUT:]
    return {
        "steps": steps,
        "dimension": sum(p.numel() for p in net.parameters()),
        "share": median((s + m) / (s + m + t) for s, m, t in rounds),
        "share_in_parallel": median((s + m / CLIENTS) / (s + (m + t) / CLIENTS) for s, m, t in rounds),
        "server_seconds": median(s for s, _, _ in rounds),
        "mod_seconds": median(m / CLIENTS for _, m, _ in rounds),
        "train_seconds": median(t / CLIENTS for _, _, t in rounds),
    }


if __name__ == "__main__":
    given = options(str(__doc__))
    logging.getLogger("flwr").setLevel(logging.ERROR)
    record(given.out, {"clients": CLIENTS, "rounds": ROUNDS - LEFT_OUT, "runs": [measure(steps) for steps in STEPS]})
