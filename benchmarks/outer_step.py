"""Loss and bytes of examples/outer_step at several amounts of noise: the table of docs/how-to/pytorch.md.

    python benchmarks/outer_step.py --out evidence/records/benchmarks/outer_step.json

It starts the example with torchrun, two processes, once for each. Losses do not depend on the machine's speed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = Path("examples") / "outer_step" / "train.py"
NOISES = (0.001, 0.3, 1.0, 3.0)
HALF, ROUNDS = 8, 16
COMMAND = f"torchrun --standalone --nproc-per-node 2 {EXAMPLE} --rounds {ROUNDS} --noise N"


def row(output: str, noise: float) -> dict[str, Any]:
    """Of process 0: the loss after half of the rounds and after all, and the bytes that it sent."""
    losses = [float(loss) for loss in re.findall(r"rank 0 round \d+ loss ([\d.]+)", output)]
    (sent,) = re.findall(r"rank 0 sent ([\d,]+) bytes", output)
    return {"noise": noise, f"loss_{HALF}": losses[HALF - 1], f"loss_{ROUNDS}": losses[-1], "bytes": _number(sent)}


def plain(output: str) -> int:
    """What float32 would take."""
    return _number(re.findall(r"instead of ([\d,]+); model", output)[0])


def play(noise: float) -> str:
    """What the example prints."""
    command = [sys.executable, "-m", "torch.distributed.run", *COMMAND.split()[1:-1], str(noise)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "evidence" / "records" / "benchmarks" / "outer_step.json")
    options = parser.parse_args()
    outputs = {noise: play(noise) for noise in NOISES}
    rows = [row(output, noise) for noise, output in outputs.items()]
    found = {"command": COMMAND, "rank": 0, "float32_bytes": plain(outputs[NOISES[0]]), "rows": rows}
    options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
