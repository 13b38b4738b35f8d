"""CPU seconds (user and system) of a first frame from an empty kernel cache, and of compiling every kernel.

Each case is a process of its own. "numba" imports Numba and compiles one empty function: what no kernel can avoid. CPU
seconds grow by a third when other work shares the core, so the least of several runs counts.

python benchmarks/compile.py [--out evidence/records/benchmarks/compile.json]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from common import options, record

START = (
    "import numpy as np; x = np.random.default_rng(0).standard_normal(100_000).astype('f4'); import adaquantfl as aq; "
)
NUMBA = "import numpy, numba; numba.njit(lambda x: x)(1)"
SEND = START + "aq.compress(x, s={s}, key=1, codec='{codec}', quantizer='{quantizer}')"
RECEIVE = START + "total = aq.Accumulator(len(x)); total.add(open(r'{frame}', 'rb').read()); total.result()"
CASES = [
    *(("uniform", codec, 3) for codec in ("fixed", "sparse", "dense", "auto")),
    ("uniform", "fixed", 5000),
    *((quantizer, "auto", 3) for quantizer in ("rotated", "lattice", "centroid", "natural", "nearest")),
]


def cpu_seconds(code: str) -> float:
    """What a process with an empty cache takes."""
    with tempfile.TemporaryDirectory() as cache:
        code += "; import os; print(sum(os.times()[:2]))"
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "ADAQUANTFL_THREADS": "1"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
        return float(done.stdout.splitlines()[-1])


def measure(quantizer: str, codec: str, s: int) -> dict[str, object]:
    import numpy as np

    import adaquantfl as aq

    x = np.random.default_rng(0).standard_normal(100_000).astype("f4")
    with tempfile.NamedTemporaryFile(suffix=".frame") as frame:
        frame.write(aq.compress(x, s, 1, codec, quantizer=quantizer))
        frame.flush()
        codes = {
            "compress": SEND.format(quantizer=quantizer, codec=codec, s=s),
            "add": RECEIVE.format(frame=frame.name),
        }
        least = {name: min(cpu_seconds(code) for _ in range(2)) for name, code in codes.items()}
    return {"quantizer": quantizer, "codec": codec, "s": s, **least}


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = []
    for case in CASES:
        rows.append(measure(*case))
        print(rows[-1], flush=True)
    least = min(cpu_seconds(NUMBA) for _ in range(5))
    record(arguments.out, {"numba": least, "rows": rows})
