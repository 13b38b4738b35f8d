"""Memory of `aq.Server` while many clients answer one round, and of either end of a round with a large model.

python benchmarks/load.py [--clients N --dimension D] [--rule auto] [--out evidence/records/benchmarks/load.json]

Counted are the bytes that Python and NumPy allocate (tracemalloc) above what the process had before the server began.
A model is 4 bytes per element. The replies wait at the server until the round closes. The clients' own memory does not
count as the server's. At the client's end count the order, the model that it holds and what it left out of earlier
updates, but not the arrays that it trains.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import tracemalloc
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.protocol.client import ModelCache
from common import options, record

LOADS = ((10_000, 100_000), (1_000, 1_663_370))  # clients in a round, and elements
PER_CLIENT, MODELS = 2_000, 4  # the target: bytes for each client, and models, above the replies
LARGE, MODELS_AT_AN_END = 100_000_000, 6  # elements, and the target for either end
ROUNDS = 5  # from the fourth on a client holds all that it ever does


def resident() -> tuple[int, int]:
    """Return the bytes of the process now, and the most since `forget`; 0 where the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return tuple(1024 * int(lines[name].split()[0]) for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
    except (OSError, KeyError):
        return 0, 0


def forget() -> None:
    """Begin to look for the most again."""
    gc.collect()
    tracemalloc.reset_peak()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def now() -> int:
    return tracemalloc.get_traced_memory()[0]


def most() -> int:
    return tracemalloc.get_traced_memory()[1]


def warm_up(rule: str) -> None:
    """Play a round of a tiny model: modules that are loaded when they are needed are no load."""
    server, client = aq.Server(np.zeros(9, np.float32), rule=rule), aq.Client(0)
    weights = np.asarray(client.open(server.open([0])[0]))
    server.receive(0, client.reply(weights + 1, loss=1.0))
    server.close()


def load(clients: int, dimension: int, rule: str, rounds: int = 2) -> dict[str, Any]:
    """Play two rounds: the first orders have the whole model, the later ones what changed."""
    rng, rows = np.random.default_rng(0), []
    trained = [rng.standard_normal(dimension, dtype=np.float32) for _ in range(2)]
    cache, model, others = ModelCache(), 4 * dimension, PER_CLIENT * clients
    start, at_start = now(), resident()[0]
    server = aq.Server(np.zeros(dimension, np.float32), rule=rule, min_clients=1)
    for number in range(1, rounds + 1):
        forget()
        theirs = model if cache.last else 0  # what the clients hold
        orders = server.open(range(clients))
        order = len(orders[0])  # each is made when it is asked for
        opened, replies = most() - start - theirs, list[bytes]()
        for client in range(clients):
            end = aq.Client(client, cache)
            end.open(orders[client], copy=False)
            replies.append(end.reply(trained[client % 2], loss=1.0, examples=1))
        del orders, end
        waiting, seconds = sum(map(len, replies)), [time.perf_counter()]
        forget()
        while replies:
            server.receive(len(replies) - 1, replies.pop())
        seconds.append(time.perf_counter())
        server.close()
        seconds.append(time.perf_counter())
        closed = most() - start - model
        rows.append(
            {
                "round": number,
                "order": order,
                "replies": waiting,
                "open": opened,
                "receive and close": closed,
                "resident": resident()[1] - at_start - model,
                "seconds": np.diff(seconds).round(2).tolist(),
                "above the replies": max(opened, closed - waiting),
                "models": (max(opened, closed - waiting) - others) / model,
            }
        )
    return {"clients": clients, "dimension": dimension, "allowed": MODELS * model + others, "rounds": rows}


def either_end(dimension: int, rule: str) -> dict[str, Any]:
    """Return the models at the peak of rounds with one client: at the server, and at the client.

    keeping: where clients keep what they leave out of their updates.
    """
    found = {name: peaks(dimension, rule, feedback) for name, feedback in (("sending", None), ("keeping", True))}
    return {"dimension": dimension, "allowed": MODELS_AT_AN_END, **found}


def peaks(dimension: int, rule: str, feedback: bool | None) -> dict[str, float]:
    """Return the models of either end. feedback: as `aq.Server` takes it."""
    trained = np.random.default_rng(0).standard_normal(dimension, dtype=np.float32)
    size, found = 4 * dimension, {"server": 0, "client": 0}
    start, theirs = now(), 0
    server, client = aq.Server(np.zeros(dimension, np.float32), rule=rule, feedback=feedback), aq.Client(0)
    for _ in range(ROUNDS):
        forget()
        order = server.open([0])[0]
        found["server"] = max(found["server"], most() - start - theirs)
        ours = now() - start - theirs - len(order)
        forget()
        client.open(order, copy=False)
        reply = client.reply(trained, loss=1.0)
        found["client"] = max(found["client"], most() - start - ours)
        del order
        theirs = now() - start - ours - len(reply)
        forget()
        server.receive(0, reply)
        del reply
        server.close()
        found["server"] = max(found["server"], most() - start - theirs)
    return {end: found[end] / size for end in found}


if __name__ == "__main__":
    if not tracemalloc.is_tracing():  # from the start, or tables of the interpreter that grow would count as new
        os.execv(sys.executable, [sys.executable, "-X", "tracemalloc", *sys.argv])
    arguments = options(__doc__ or "", clients="one load only", dimension="its elements", rule="of the server")
    rule, loads, large = arguments.rule or "auto", LOADS, LARGE
    if arguments.clients or arguments.dimension:
        large = int(arguments.dimension or LOADS[0][1])
        loads = ((int(arguments.clients or LOADS[0][0]), large),)
    jobs = [partial(load, *each, rule) for each in loads] + [partial(either_end, large, rule)]
    with get_context("spawn").Pool(1, warm_up, [rule], maxtasksperchild=1) as fresh:  # none is measured after another
        *rows, ends = (fresh.apply(job) for job in jobs)
    record(arguments.out, {"rule": rule, "loads": rows, "ends": ends})
