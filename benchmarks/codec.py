"""Every codec on one and on both cores, against copying the vector and against the NumPy and PyTorch versions.

python benchmarks/codec.py [--out evidence/records/benchmarks/codec.json]
"""

from __future__ import annotations

import adaquantfl as aq
import speed
from common import options, record

if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = []
    for threads in (1, 2):
        aq.set_threads(threads)
        some = list(speed.measure(plain=threads == 1))
        print(speed.table(some), flush=True)
        rows += [row.to_dict() for row in some]
    record(arguments.out, {"rows": rows})
