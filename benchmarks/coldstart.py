"""What a fresh process pays, in seconds of CPU: importing the package, and its first frame.

python benchmarks/coldstart.py [--out evidence/records/benchmarks/coldstart.json]
"""

from __future__ import annotations

import subprocess
import sys

from common import options, record

TIMED = "{}; import time; print(time.process_time())"  # the interpreter's own start included
IMPORT = "import adaquantfl"
NUMPY = "import numpy"
FRAME = (
    "import numpy as np; x = np.linspace(-1, 1, 100_000, dtype=np.float32); import adaquantfl as aq; "
    "aq.compress(x, s={s}, key=1, codec='{codec}')"
)


def seconds(code: str, repeat: int = 7) -> float:
    """The cheapest of several fresh processes, after one that brings the files into memory."""
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", TIMED.format(code)], capture_output=True, check=True, text=True
            ).stdout
        )
        for _ in range(repeat + 1)
    ]
    return min(times[1:])


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    figures = {"import_numpy": seconds(NUMPY), "import_adaquantfl": seconds(IMPORT)}
    for codec, s in (("fixed", 3), ("sparse", 3), ("dense", 300), ("auto", 3)):
        figures[f"first_frame_{codec}"] = seconds(FRAME.format(s=s, codec=codec))
    record(arguments.out, {"seconds": figures})
