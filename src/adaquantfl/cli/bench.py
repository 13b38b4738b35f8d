"""This machine's codec speed, as a table. Targets and plain NumPy and PyTorch versions are in benchmarks/."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from ..codecs.accumulator import Accumulator
from ..codecs.coding import compress

DIMENSION, LEVELS, CODECS = 1_663_370, (1, 3, 15, 255), ("fixed", "sparse", "dense")  # the paper's CNN


def table() -> Iterator[str]:
    """The lines of the table, each as soon as it is measured: GB/s of float32, and as a share of np.copyto."""
    x = np.random.default_rng(0).standard_normal(DIMENSION, dtype=np.float32)
    target, total = np.empty_like(x), Accumulator(DIMENSION)
    copy = _best(lambda: np.copyto(target, x))
    yield f"d = {DIMENSION:,}; np.copyto: {x.nbytes / copy / 1e9:.1f} GB/s; in brackets: share of it"
    yield f"{'s':>4} {'codec':7} {'bits/el.':>9} {'compress':>19} {'decode + add':>19}"
    for s in LEVELS:
        for codec in CODECS:
            frame = compress(x, s, 1, codec)

            def add(frame: bytes = frame) -> None:
                total.add(frame, 0.5)

            both = _best(lambda s=s, codec=codec: compress(x, s, 1, codec)), _best(add)  # type: ignore[misc]
            speeds = " ".join(f"{x.nbytes / one / 1e9:6.2f} GB/s ({copy / one:5.2f})" for one in both)
            yield f"{s:4} {codec:7} {8 * len(frame) / DIMENSION:9.4f} {speeds}"


def _best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs, after one that warms up: noise only ever adds."""
    times = []
    for _ in range(6):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times[1:])
