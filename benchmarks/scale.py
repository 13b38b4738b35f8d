"""What the server's work costs as clients, elements and non-zeros grow, and a federation of ten thousand clients.

    python benchmarks/scale.py [--out evidence/records/benchmarks/scale.json]

The server's part is on one thread, in CPU seconds: who else uses the machine does not count. The federation plays a
whole run (history and checkpoints included) on two workers; its seconds leave out the start, and the evaluations, which
are for the record.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import run
from adaquantfl.runs.state import RunState
from common import options, record
from speed import gaussian

S = 3
MIDDLE = 11_181_642  # ResNet-18
DENSITIES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
DIMENSIONS = (100_000, 1_663_370, MIDDLE, 100_000_000)
CLIENTS = (8, 32, 128, 512)
LARGEST_PLAIN = MIDDLE  # beyond it, the paper's code and float32 for 512 clients take minutes and say nothing new
PATIENCE = 12.0  # CPU seconds for one figure
DISTINCT = 4  # different frames that take turns: as many as there are clients would only fill the memory
FEDERATION = {
    "dataset": "fashion-mnist",
    "model": "mlp",
    "clients": 10_000,
    "clients_per_round": 50,
    "rounds": 200,
    "batch_size": 6,  # all that a client has
    "loss": "round",
    "loss_smoothing": 0.9,
    "downlink": "exact",  # who holds what is kept for every client
    "workers": 2,
    "evaluate_every": 100,
}


def cpu_best(work: Callable[[], object], repeat: int = 9) -> float:
    """CPU seconds of the cheapest of several runs, after one that warms up."""
    work()
    times: list[float] = []
    while len(times) < repeat and (len(times) < 2 or sum(times) < PATIENCE):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def by_density() -> list[dict[str, Any]]:
    """Sparse frames of one dimension: the cost of checking, decoding and adding against the number of non-zeros."""
    rng = np.random.default_rng(0)
    rows = []
    for density in DENSITIES:
        values = np.zeros(MIDDLE, dtype=np.int8)
        count = int(density * MIDDLE)
        values[rng.choice(MIDDLE, count, replace=False)] = rng.choice(np.array([-1, 1], dtype=np.int8), count)
        frame = aq.encode(aq.Levels(values, np.float32(1), 1), "sparse")
        seconds = cpu_best(adder(MIDDLE, frame))
        rows.append({"d": MIDDLE, "nonzeros": count, "bytes": len(frame), "cpu_seconds": seconds})
    return rows


def adder(d: int, frame: bytes) -> Callable[[], None]:
    total = aq.Accumulator(d)

    def add() -> None:
        total.add(frame, 0.5)

    return add


def by_size() -> list[dict[str, Any]]:
    """n frames of dimension d from first check to the sum in hand: the smallest code, the paper's, and float32."""
    rows = []
    for d in DIMENSIONS:
        x = gaussian(d)
        for codec in ("auto", "fixed", "float32") if d <= LARGEST_PLAIN else ("auto",):
            frames = [frame_of(x, codec, key) for key in range(DISTINCT)]
            for n in CLIENTS:
                seconds = cpu_best(lambda frames=frames, n=n, d=d: add_up(frames, n, d))
                size = sum(len(frames[k % DISTINCT]) for k in range(n))
                rows.append({"d": d, "s": S, "codec": codec, "clients": n, "bytes": size, "cpu_seconds": seconds})
                print(rows[-1], flush=True)
    return rows


def frame_of(x: np.ndarray, codec: str, key: int) -> bytes:
    return aq.encode_float32(x) if codec == "float32" else aq.compress(x, S, key, codec)


def add_up(frames: list[bytes], n: int, d: int) -> np.ndarray:
    total = aq.Accumulator(d)
    for k in range(n):
        total.add(frames[k % DISTINCT], 1 / n)
    return total.result()


class Watch:
    """Looks at a run after every round: time, CPU time and memory of the server and of its workers."""

    def __init__(self) -> None:
        self.engine: LocalEngine | None = None
        self.lines: list[dict[str, Any]] = []
        self.looks: list[dict[str, Any]] = []

    def connect(self, config: Config) -> LocalEngine:
        self.engine = LocalEngine(config)
        return self.engine

    def __call__(self, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if line is None:
            return
        assert self.engine is not None
        assert self.engine._pool is not None
        workers = [process.pid for process in self.engine._pool._workers.values()]
        self.lines.append(line)
        self.looks.append(
            {
                "round": state.round,
                "clock": time.perf_counter(),
                "server_cpu": time.process_time(),
                "workers_cpu": sum(map(cpu_seconds, workers)),
                "server_mb": resident_mb(os.getpid()),
                "workers_mb": sum(map(resident_mb, workers)),
            }
        )


def cpu_seconds(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def federation() -> dict[str, Any]:
    """Bookkeeping is all that is not clients' training and encoding: by the clock, and in CPU seconds."""
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        summary = run(load_config("fmnist-cnn-iid", FEDERATION), Path(folder) / "run", watch, watch.connect)
    first, last = watch.looks[0], watch.looks[-1]
    seconds = {
        phase: sum(line["seconds"].get(phase, 0.0) for line in watch.lines[1:]) for phase in watch.lines[-1]["seconds"]
    }
    playing = last["clock"] - first["clock"] - seconds["evaluate"]
    clients = (seconds["train"] + seconds["encode"]) / FEDERATION["workers"]
    cpu = {who: last[f"{who}_cpu"] - first[f"{who}_cpu"] for who in ("server", "workers")}
    looks = [look for look in watch.looks if look["round"] == 1 or look["round"] % 20 == 0]
    return {
        "settings": FEDERATION,
        "d": summary["dimension"],
        "final_loss": summary["final_loss"],
        "final_accuracy": summary["final_accuracy"],
        "seconds": {"rounds": playing, "clients_per_worker": clients, "aggregate": seconds["aggregate"]},
        "cpu_seconds": cpu,
        "bookkeeping_share_of_time": 1 - clients / playing,
        "bookkeeping_share_of_cpu": cpu["server"] / (cpu["server"] + cpu["workers"]),
        "memory": [{key: look[key] for key in ("round", "server_mb", "workers_mb")} for look in looks],
    }


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    aq.set_threads(1)
    server = {"by_density": by_density(), "by_size": by_size()}
    aq.set_threads(None)
    record(arguments.out, {"threads": 1, **server, "federation": federation()})
