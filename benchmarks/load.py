"""Memory of `aq.Server` while many clients answer one round, above what the process took before there was a server.

python benchmarks/load.py [--clients 10000] [--dimension 100000] [--rule auto] [--out FILE.json]

A model is 4 bytes per element. The replies are counted with the server: they wait until the round closes. "end" is the
whole of a client's round, with the order and the arrays that it is given to train from.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.protocol.client import ModelCache
from common import options, record

PER_CLIENT = 2_000  # bytes that the targets allow for each client
MODELS = 4  # above the replies, and what each client takes


def resident() -> tuple[int, int]:
    """Bytes of the process now, and at most since `forget`; 0 where the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return tuple(1024 * int(lines[name].split()[0]) for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
    except (OSError, KeyError):
        return 0, 0


def forget() -> None:
    """Begin to look for the most again."""
    gc.collect()
    if tracemalloc.is_tracing():
        tracemalloc.reset_peak()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def traced() -> int:
    return tracemalloc.get_traced_memory()[1]


def play(clients: int, dimension: int, rule: str, rounds: int = 2) -> list[dict[str, Any]]:
    """Two rounds: the first orders have the whole model, the later ones what changed."""
    rng, rows = np.random.default_rng(0), []
    noise = [rng.standard_normal(dimension).astype(np.float32) for _ in range(2)]
    cache, ends = ModelCache(), {}
    tracemalloc.start()
    start, at_start = tracemalloc.get_traced_memory()[0], resident()[0]
    server = aq.Server(np.zeros(dimension, dtype=np.float32), rule=rule, min_clients=1)
    for _ in range(rounds):
        forget()
        orders = server.open(range(clients))
        sent = sum(len(orders[client]) for client in range(min(clients, 100)))  # each is made when it is asked for
        row: dict[str, Any] = {"open": traced() - start, "order": sent // min(clients, 100)}
        ends, replies, at = {}, {}, tracemalloc.get_traced_memory()[0]
        for client in range(clients):  # one end for all: theirs is not the server's memory
            end = ends.setdefault(0, aq.Client(client, cache))
            end._remainder = type(end._remainder)()
            end.open(orders[client], copy=False)
            replies[client] = end.reply(noise[client % 2], loss=1.0, examples=1)
        ends.clear()
        held, row["replies"] = cache.last, sum(map(len, replies.values()))
        del end
        forget()
        ours = tracemalloc.get_traced_memory()[0] - at - row["replies"]  # the clients' model, and the list
        began = time.perf_counter()
        for client in range(clients):
            server.receive(client, replies.pop(client))
        del orders
        row["receive seconds"] = time.perf_counter() - began
        row["receive"] = traced() - start - ours
        forget()
        began = time.perf_counter()
        server.close()
        row["close seconds"] = time.perf_counter() - began
        row["close"], row["resident"] = traced() - start - ours, resident()[1] - at_start
        del held
        rows.append(row)
    tracemalloc.stop()
    for number, row in enumerate(rows):
        model = 4 * dimension
        allowed = row["replies"] + PER_CLIENT * clients
        row |= {"round": number + 1, "models": (max(row["open"], row["receive"], row["close"]) - allowed) / model}
    return rows


def at_either_end(dimension: int, rule: str) -> dict[str, float]:
    """Models at the peak of a round with one client: at the server, and at the client with its order and its arrays."""
    trained = np.random.default_rng(0).standard_normal(dimension, dtype=np.float32)
    found, size = {"server": 0.0, "client": 0.0}, 4 * dimension
    tracemalloc.start()
    server, client = aq.Server(np.zeros(dimension, np.float32), rule=rule), aq.Client(0)
    ours = tracemalloc.get_traced_memory()[0]  # the server's, between rounds
    theirs = 0
    for _ in range(3):
        forget()
        order = server.open([0])[0]
        found["server"] = max(found["server"], (traced() - theirs) / size)
        ours = tracemalloc.get_traced_memory()[0] - theirs - len(order)
        forget()
        client.open(order, copy=False)
        reply = client.reply(trained, loss=1.0)
        found["client"] = max(found["client"], (traced() - ours) / size)
        del order
        theirs = tracemalloc.get_traced_memory()[0] - ours - len(reply)
        forget()
        server.receive(0, reply)
        del reply
        server.close()
        found["server"] = max(found["server"], (traced() - theirs) / size)
    tracemalloc.stop()
    return found


if __name__ == "__main__":
    arguments = options(__doc__ or "", clients="10000", dimension="100000", rule="auto")
    n, d, name = int(arguments.clients or 10_000), int(arguments.dimension or 100_000), arguments.rule or "auto"
    rows = play(n, d, name)
    for row in rows:
        print(
            f"round {row['round']}: order {row['order'] / 1e6:.2f} MB, replies {row['replies'] / 1e6:.1f} MB, "
            f"open {row['open'] / 1e6:.1f} MB, receive {row['receive'] / 1e6:.1f} MB ({row['receive seconds']:.1f} s), "
            f"close {row['close'] / 1e6:.1f} MB ({row['close seconds']:.1f} s), "
            f"resident {row['resident'] / 1e6:.1f} MB: "
            f"{row['models']:.1f} models above the replies and {PER_CLIENT:,} bytes for each client"
        )
    ends = at_either_end(d, name)
    print(f"one client: {ends['server']:.1f} models at the server, {ends['client']:.1f} at the client")
    record(
        arguments.out,
        {"ends": ends, "clients": n, "dimension": d, "rule": name, "most models": MODELS, "rows": rows},
        quiet=True,
    )
