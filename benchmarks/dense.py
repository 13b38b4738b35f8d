"""The dense codec's kernels on 65,536 symbols, which stay in the cache: both bodies, with and without vectors.

python benchmarks/dense.py [--out evidence/records/benchmarks/dense.json]

A run takes a tenth of a millisecond, so that the fastest of many is undisturbed on a machine that others use too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from typing import Any

import numpy as np

from adaquantfl.codecs import dense
from adaquantfl.codecs.kernels import dense as kernels
from adaquantfl.codecs.kernels import tables
from speed import best
from target_figures import levels_of_entropy

SYMBOLS, REPEATS = 2**16, 500
ENTROPIES = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)
FOR = {  # what Numba compiles for
    "this processor": {},
    "AVX2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+fma,+popcnt,+lzcnt"},
    "no vectors": {"NUMBA_ENABLE_AVX": "0"},
}


def measure(bits: float) -> dict[str, Any]:
    """10^9 elements per second, with as many states as a body can have."""
    levels = levels_of_entropy(bits, 8 * SYMBOLS)
    table = dense.plan(dense.Census.of(levels.values, levels.s), levels.dimension).table
    rows = {"bits": bits, "pairs": bool(table.pairs)}
    for lanes in dense.LANES:
        rows |= {f"{lanes}_{name}": value for name, value in loops(levels.values, table, lanes).items()}
    return rows


def loops(values: np.ndarray, table: dense.Table, lanes: int) -> dict[str, float]:
    symbols = (dense.as_pairs(values) if table.pairs else values.astype(np.int16))[:SYMBOLS]
    lowest = int(table.columns[0].min())
    rows = np.zeros(int((table.columns[0] + (1 << table.columns[1])).max()) - lowest, np.uint64)
    kernels.rows_of(table.columns, lowest, rows)
    slots = np.empty(tables.SLOTS, np.uint64)
    tables.slots(table.columns, slots)
    words, states, cursor = np.empty(SYMBOLS + 200, np.uint16), np.empty(lanes, np.uint32), np.empty(3, np.int64)
    sizes = np.empty(1, np.int64)
    write = partial(kernels.encode_chunks, symbols, SYMBOLS, lowest, rows, states, cursor, words, sizes)
    write()
    edges = np.array([0, sizes[0]])
    sent, out = words[: sizes[0]].copy(), np.empty(SYMBOLS, np.int16)
    sent.flags.writeable = False
    read = partial(kernels.decode_chunks, sent, edges, slots, states, cursor, out, SYMBOLS)
    assert read() == 1
    assert np.array_equal(out, symbols)
    elements = SYMBOLS * (2 if table.pairs else 1)
    return {"encode": speed(write, elements), "decode": speed(read, elements)}


def speed(work: Any, elements: int) -> float:
    return round(elements / best(work, REPEATS) / 1e9, 3)


def main() -> None:
    from common import options, record

    arguments, found = options(__doc__ or ""), {}
    for name, settings in FOR.items():
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, **settings, **({"NUMBA_CACHE_DIR": cache} if settings else {})}
            found[name] = json.loads(subprocess.check_output([sys.executable, __file__, "rows"], env=environment))
    record(arguments.out, {"symbols": SYMBOLS, "unit": "10^9 elements per second", "compiled_for": found})


if __name__ == "__main__":
    if sys.argv[1:] == ["rows"]:
        print(json.dumps([measure(bits) for bits in ENTROPIES]))
    else:
        main()
