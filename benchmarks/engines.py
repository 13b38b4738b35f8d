"""What an engine costs: a CNN round's time against the local engine's, and the bytes that really pass its sockets.

Rounds of the engines are played in turn within one run, on the same model, and compared pair by pair; the medians are
what counts on a machine that is shared, and processors' time where others crowd it. Bytes are the kernel's own count of
each connection (TCP_INFO of this process's sockets): what was written and read, without the headers of TCP and IP.

    python benchmarks/engines.py [--engine gloo]... [--out evidence/records/benchmarks/engines.json]

A record that is there keeps what it has of other engines.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from adaquantfl.codecs.frame import payload_size, read_frame
from adaquantfl.engines.base import Engine
from adaquantfl.engines.calls import Trained
from adaquantfl.engines.gloo.engine import GlooEngine
from adaquantfl.engines.gloo.launch import start_here
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.server import Server
from adaquantfl.runs.config import Config, load_config
from common import CNN, record

PAIRS = 16
LEVELS = (2, 3, 15, 255, 65535, None)  # None: float32
_TCP_INFO_BYTES = 208
_BYTES_RECEIVED, _BYTES_SENT = 128, 200  # places in Linux's struct tcp_info

START: dict[str, Callable[[Config], Engine]] = {"gloo": start_here}


def preset() -> Config:
    """The paper's CNN with 8 clients, on the data that ships with the package."""
    return load_config("fmnist-cnn-iid", {**CNN, "rule": "2bit"})


def server_of(engine: Engine, config: Config) -> Server:
    """A server with the first model of a configuration."""
    trainer = engine.player.trainer
    return Server(trainer.weights(), exact=trainer.buffer_names, stages=config.stages(trainer.examples))


def play_round(engine: Engine, server: Server) -> dict[str, Any]:
    """One round; returns its facts."""
    for client, answer in engine.train(server, server.open(eta=0.1, loss=2.3)):
        assert isinstance(answer, Trained), answer
        server.receive(client, answer.reply)
    return server.close().facts


def overhead(engine: Engine, local: LocalEngine, pairs: int = PAIRS) -> dict[str, Any]:
    """Rounds of both in turn; the same model, plan and clients. Time on the clock, and processors' time."""
    server = server_of(local, preset())
    engine.evaluate(server)  # clients have joined, and have their data
    seconds: dict[str, list[float]] = {"local": [], engine.name: []}
    cpu: dict[str, list[float]] = {"local": [], engine.name: []}
    for number in range(pairs + 1):
        order = (local, engine) if number % 2 else (engine, local)
        before = server.current
        for by in order:
            server.return_to(before)
            began, used = time.perf_counter(), cpu_seconds()
            play_round(by, server)
            if number:  # the first is for everybody to warm up
                seconds[by.name].append(time.perf_counter() - began)
                cpu[by.name].append(cpu_seconds() - used)
    ratios = [ours / theirs for ours, theirs in zip(seconds[engine.name], seconds["local"], strict=True)]
    work = [ours / theirs for ours, theirs in zip(cpu[engine.name], cpu["local"], strict=True)]
    return {
        "rounds": pairs,
        "workers": local.workers,
        "round_seconds": median(seconds[engine.name]),
        "local_round_seconds": median(seconds["local"]),
        "overhead": median(ratios) - 1,
        "overhead_of_medians": median(seconds[engine.name]) / median(seconds["local"]) - 1,
        "overhead_of_fastest": min(seconds[engine.name]) / min(seconds["local"]) - 1,
        "ratios": sorted(round(ratio, 3) for ratio in ratios),
        "cpu_overhead": median(work) - 1,
        "cpu_ratios": sorted(round(ratio, 3) for ratio in work),
    }


def cpu_seconds() -> float:
    """Used so far by this process and all that come from it."""
    used, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # gone since
            continue
        pid = int(stat.parent.name)
        parents[pid], used[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(used[pid] for pid in family) / os.sysconf("SC_CLK_TCK")


def bytes_by_level(engine: GlooEngine) -> list[dict[str, Any]]:
    """One round for each number of levels, with a model that the clients do not have yet."""
    rows = []
    server = server_of(engine, replace(preset(), downlink="model"))
    for s in LEVELS:
        state, before = server.current, socket_bytes(engine.store.port)
        orders = {client: replace(Order.unpack(data), s=s).pack() for client, data in server.open(eta=0.1).items()}
        answers = list(engine.train(server, orders))
        sent, received = (after - then for after, then in zip(socket_bytes(engine.store.port), before, strict=True))
        known = {client: Order.unpack(order).known(server.current.layout.lengths) for client, order in orders.items()}
        replies = [
            replace(reply := Reply.unpack(answer.reply), frame=read_frame(reply.frame, None, known[client]).written())
            for client, answer in answers
            if isinstance(answer, Trained)
        ]
        rows.append(traffic(s, server, replies, received, sent))
        server.return_to(state)
        play_round(engine, server)  # to another model
    return rows


def traffic(s: int | None, server: Server, replies: list[Reply], up: int, down: int) -> dict[str, Any]:
    """What passed the sockets in a round, beside what the frames and the models have."""
    frames = sum(len(reply.frame) + len(reply.buffers) for reply in replies)
    model = server.model
    return {
        "s": s,
        "clients": len(replies),
        "payload_bytes_up": sum(payload_size(reply.frame) for reply in replies),
        "frame_bytes_up": frames,
        "frame_bytes": frames / len(replies),
        "socket_bytes_up": up,
        "up_over_frames": up / frames,
        "model_bytes_down": len(replies) * 4 * (len(model.weights) + len(model.buffers)),
        "socket_bytes_down": down,
    }


def bytes_of_the_exact_downlink(engine: GlooEngine) -> dict[str, Any]:
    """The second round on: clients hold a model, and get what leads to the next."""
    server = server_of(engine, replace(preset(), downlink="exact", rule="adaquant"))
    play_round(engine, server)
    before = socket_bytes(engine.store.port)
    line = play_round(engine, server)
    sent, received = (after - then for after, then in zip(socket_bytes(engine.store.port), before, strict=True))
    return {"s": line["s"], "clients": line["clients"], "socket_bytes_up": received, "socket_bytes_down": sent}


def socket_bytes(store: int) -> tuple[int, int]:
    """Sent and received so far on this process's TCP connections, but for those of the store at this port."""
    sent = received = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if store in (copy.getsockname()[1], copy.getpeername()[1]):
                    continue
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except (OSError, IndexError):  # not connected, or not TCP
            continue
        received += struct.unpack_from("<Q", info, _BYTES_RECEIVED)[0]
        sent += struct.unpack_from("<Q", info, _BYTES_SENT)[0]
    return sent, received


def measure(name: str) -> dict[str, Any]:
    local = LocalEngine(preset())
    engine = START[name](preset())
    try:
        figures: dict[str, Any] = {"overhead": overhead(engine, local)}
        if isinstance(engine, GlooEngine):
            figures["bytes"] = bytes_by_level(engine)
            figures["exact_downlink"] = bytes_of_the_exact_downlink(engine)
    finally:
        engine.close()
        local.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=tuple(START), help="default: all")
    parser.add_argument("--out", type=Path, help="also write the record to this JSON file")
    options = parser.parse_args()
    engines = {}
    if options.out and options.out.exists():
        engines = json.loads(options.out.read_text())["engines"]
    for name in options.engine or START:
        engines[name] = measure(name)
    figures = {"preset": "fmnist-cnn-iid on the bundled sample, batch 64, method 2bit", "engines": engines}
    record(options.out, figures)


if __name__ == "__main__":
    main()
