"""Sizes of the bodies against the entropy of the signed levels, over distributions and s.

python benchmarks/sizes.py [--out evidence/records/benchmarks/sizes.json]
"""

from __future__ import annotations

from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.codecs.frame import payload_size
from common import entropy_bytes, options, record

DIMENSIONS = (1_663_370, 11_181_642)
LEVELS = (1, 3, 10, 40, 150, 400, 1500, 65535)


def draw(kind: str, d: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    draws = {
        "gauss": lambda: rng.standard_normal(d),
        "laplace": lambda: rng.laplace(size=d),
        "student-t 2": lambda: rng.standard_t(2, d),
    }
    return draws[kind]().astype(np.float32)


def row(x: np.ndarray, kind: str, s: int) -> dict[str, Any]:
    levels = aq.quantize(x, s, key=1)
    entropy = entropy_bytes(levels)
    sizes = {codec: payload_size(aq.encode(levels, codec)) for codec in ("fixed", "sparse", "dense", "auto")}
    return {
        "d": len(x),
        "kind": kind,
        "s": s,
        "nonzero": float(np.count_nonzero(levels.values) / len(x)),
        "entropy_bytes": entropy,
        "over_entropy": {codec: size / entropy for codec, size in sizes.items()},
    }


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = []
    for d in DIMENSIONS:
        for kind in ("gauss", "laplace", "student-t 2"):
            x = draw(kind, d)
            rows += [row(x, kind, s) for s in LEVELS]
    record(arguments.out, {"rows": rows})
