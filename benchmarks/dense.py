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

from adaquantfl.codecs import dense_wide
from adaquantfl.codecs.dense_table import LevelTable
from adaquantfl.codecs.kernels import dense, rans
from adaquantfl.codecs.kernels.rans_vectors import LANES
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
    """10^9 elements per second, and what the body takes over the entropy."""
    levels = levels_of_entropy(bits, 8 * SYMBOLS)
    census = dense_wide.Census.of(levels.values, levels.s)
    how = dense_wide.plan(census, levels.dimension)
    assert how
    return {"bits": bits, "pairs": bool(how.table.pairs), **wide(levels.values, how.table), **narrow(levels, census)}


def wide(values: np.ndarray, table: dense_wide.SymbolTable) -> dict[str, float]:
    symbols = (dense_wide.as_pairs(values) if table.pairs else values.astype(np.int16))[:SYMBOLS]
    lowest, rows = table.for_writing()
    words, states, cursor = np.empty(SYMBOLS + 200, np.uint16), np.empty(LANES, np.uint32), np.empty(3, np.int64)
    sizes = np.empty(1, np.int64)
    write = partial(rans.encode_chunks, symbols, SYMBOLS, lowest, rows, states, cursor, words, sizes)
    write()
    edges = np.array([0, sizes[0]])
    sent, out = words[: sizes[0]].copy(), np.empty(SYMBOLS, np.int16)
    sent.flags.writeable = False
    read = partial(rans.decode_chunks, sent, edges, table.for_reading(), states, cursor, out, SYMBOLS)
    assert read() == 1
    assert np.array_equal(out, symbols)
    elements = SYMBOLS * (2 if table.pairs else 1)
    return {"wide_encode": speed(write, elements), "wide_decode": speed(read, elements)}


def narrow(levels: Any, census: dense_wide.Census) -> dict[str, float]:
    values, (table, _) = levels.values[:SYMBOLS], LevelTable.of(census.counts)
    states, words = np.empty(dense.LANES, np.uint64), np.zeros(SYMBOLS + dense.STATE_WORDS + 1, np.uint32)
    write = partial(dense.encode_tile, values, *table.for_writing(levels.s)[1:], states, words)
    sent = np.append(words[write() :], np.zeros(dense.LANES, np.uint32))
    out = np.empty_like(values)
    read = partial(dense.decode_tile, sent, 0, table.for_reading(), states, out)
    assert read() > 0
    assert np.array_equal(out, values)
    return {"narrow_encode": speed(write, SYMBOLS), "narrow_decode": speed(read, SYMBOLS)}


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
