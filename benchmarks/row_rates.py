"""What noise that follows rows and columns saves, on updates of the CNN: `shaped` beside `mixed` and `centroid`.

Each quantizer has the finest levels whose frame has at most so many bits per element. Frames are whole: the factors of
`shaped` are in them. Errors are squared, as a share of the update's energy.

    python benchmarks/row_rates.py [--out results/benchmarks/row_rates.json]
"""

from __future__ import annotations

from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.codecs.factors import pack_factors
from adaquantfl.protocol.arrays import Layout
from adaquantfl.quantizers.registry import find
from common import cnn_updates, options, record

ROUNDS = (0, 20)
BITS = (0.005, 0.02, 0.1, 0.5, 2.0)
NAMES = ("centroid", "mixed", "shaped")
TRIES = 14


def measured(update: np.ndarray, layout: Layout, name: str, bits: float) -> dict[str, Any]:
    """The finest levels whose frame has at most this many bits per element."""
    kind, segments = find(name).with_shapes(layout.shapes), np.array(layout.lengths)
    low, high = 1e-2, 1e4

    def levels(s: float) -> aq.Levels:
        whole, stretch = kind.levels_for(s, segments)
        return aq.quantize(update, whole, 3, segments, stretch, kind)

    for _ in range(TRIES):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if 8 * len(aq.encode(levels(middle))) > bits * len(update) else (middle, high)
    best = levels(low)
    frame = aq.encode(best)
    return {
        "s": low,
        "bits": 8 * len(frame) / len(update),
        "factor_bytes": len(pack_factors(best.factors)) if best.factors else 0,
        "error": kind.drawn_error(update, aq.decode(frame)),
    }


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = []
    for done, update, layout in cnn_updates(ROUNDS):
        for bits in BITS:
            for name in NAMES:
                rows.append({"rounds": done, "wanted": bits, "quantizer": name, **measured(update, layout, name, bits)})
                print(rows[-1], flush=True)
    record(arguments.out, {"rows": rows}, quiet=True)
