"""Peak memory of the server's sum against the number of clients: O(d), not O(n d).

python benchmarks/memory.py [--out evidence/records/benchmarks/memory.json]
"""

from __future__ import annotations

import tracemalloc

import numpy as np

import adaquantfl as aq
from common import options, record

DIMENSION = 1_663_370


def peak_bytes(clients: int, s: int, codec: str) -> int:
    """Bytes at the peak while this many frames arrive one after the other, each freed by its sender."""
    rng = np.random.default_rng(0)
    updates = [rng.standard_normal(DIMENSION).astype(np.float32) for _ in range(2)]
    aq.Accumulator(DIMENSION).add(aq.compress(updates[0], s, 0, codec), 1.0)  # what is made once
    frames = [aq.compress(updates[k % 2], s, k, codec) for k in range(2)]
    tracemalloc.start()
    total = aq.Accumulator(DIMENSION)
    for k in range(clients):
        total.add(bytes(bytearray(frames[k % 2])), 1 / clients)
    total.result()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = [
        {"s": s, "codec": codec, "clients": n, "peak_over_4d": peak_bytes(n, s, codec) / (4 * DIMENSION)}
        for s, codec in ((2, "auto"), (255, "fixed"), (65535, "fixed"))
        for n in (1, 8, 64)
    ]
    record(arguments.out, {"d": DIMENSION, "rows": rows})
