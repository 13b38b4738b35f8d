"""The error of every quantizer at the bytes of a training round: hundredths of a bit per element and fewer.

As mean_estimation.py, on the CNN's updates only. It has 1.7 million elements, for which 0.002 to
0.005 bits each are 400 to 1000 bytes.

    python benchmarks/few_bytes.py [--out evidence/records/benchmarks/few_bytes.json]
"""

from __future__ import annotations

from common import options, record
from mean_estimation import DRAWS, ROUNDS, searched, vectors

BITS = (0.002, 0.005, 0.02, 0.1)

if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = []
    for vector in vectors():
        if vector.kind.startswith("CNN"):
            print(vector.kind, flush=True)
            rows += searched(vector, BITS)
    record(arguments.out, {"draws": DRAWS, "rounds": list(ROUNDS), "rows": rows}, quiet=True)
