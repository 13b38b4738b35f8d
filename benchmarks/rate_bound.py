"""How far each quantizer is from the bound 1 / (2^(2 R) - 1) on a Gaussian vector, from 0.005 to 4 bits per element.

No unbiased quantizer of a Gaussian vector errs less than that at R bits per element: with the best scale, its values
would otherwise beat the rate-distortion function 2^(-2 R). Bits are those of whole frames. The gap is R less the bits
at which the bound has the error that was measured.

    python benchmarks/rate_bound.py [--out evidence/records/benchmarks/rate_bound.json]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from common import options, record
from mean_estimation import DRAWS, D, Vector, row, search

BITS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0)
SEARCHED = ("uniform", "lattice", "centroid")
EDEN = (1, 2, 4, 8)  # s at 1 to 4 bits


def bound(bits: float) -> float:
    """The least error of an unbiased quantizer."""
    return 1 / (4.0**bits - 1)


def gap(bits: float, error: float) -> float:
    """The bits beyond those at which the bound has this error."""
    return bits - 0.5 * math.log2(1 + 1 / error)


def measured() -> list[dict[str, Any]]:
    vector = Vector("Gaussian", np.random.default_rng(0).standard_normal(D).astype(np.float32))
    rows = [row(vector, "eden", None, s, 1.0, None) for s in EDEN]
    for name in SEARCHED:
        for wanted in BITS:
            if (found := search(vector, name, None, wanted)) is not None:
                rows.append(row(vector, name, None, *found, wanted))
        print(name, flush=True)
    return [one | {"bound": bound(one["bits"]), "gap": gap(one["bits"], one["error"])} for one in rows]


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    record(arguments.out, {"d": D, "draws": DRAWS, "rows": measured()})
