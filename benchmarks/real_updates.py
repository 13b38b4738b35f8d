"""Frame sizes on real updates of the CNN, against the entropy of the levels and against the paper's formula.

The updates are those of the first client after 0 and 20 rounds of training on the bundled sample. Below 1.0, a code
that follows the density along the vector beats the entropy of the whole vector's histogram.

    python benchmarks/real_updates.py [--out evidence/records/benchmarks/real_updates.json]
"""

from __future__ import annotations

from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.codecs.frame import payload_size
from adaquantfl.quantizers.segments import scope_segments
from common import cnn_updates, entropy_bytes, options, record

ROUNDS = (0, 20)
LEVELS = (1, 2, 3, 10, 30, 100, 1000, 65535)


def row(update: np.ndarray, done: int, scope: str, s: int, tensors: tuple[int, ...]) -> dict[str, Any]:
    segments = scope_segments(scope, tensors)
    levels = aq.quantize(update, s, aq.stream_key(0, done, 0), segments)
    sizes = {codec: payload_size(aq.encode(levels, codec)) for codec in ("fixed", "sparse", "dense", "auto")}
    entropy = entropy_bytes(levels)
    formula = aq.paper_bits(len(update), s, 1 if segments is None else len(segments)) / 8
    return {
        "rounds": done,
        "scope": scope,
        "s": s,
        "nonzero": float(np.count_nonzero(levels.values) / len(update)),
        "entropy_bytes": entropy,
        "bytes": sizes,
        "over_entropy": {codec: size / entropy for codec, size in sizes.items()},
        "paper_over_frame": formula / len(aq.encode(levels)),
    }


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = [
        row(update, done, scope, s, layout.lengths)
        for done, update, layout in cnn_updates(ROUNDS)
        for scope in ("tensor", "whole")
        for s in LEVELS
    ]
    record(arguments.out, {"rows": rows})
