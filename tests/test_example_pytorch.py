"""examples/pytorch, launched by torchrun on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import HANG_SECONDS

SCRIPT = Path(__file__).parents[1] / "examples" / "pytorch" / "train.py"


@pytest.mark.slow
def test_it_trains_on_few_bytes() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    done = subprocess.run(
        [*command, str(SCRIPT), "--rounds", "8", "--steps", "5"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rounds = re.findall(r"s +(\d+)  loss ([\d.]+)  ([\d,]+) bytes up, not ([\d,]+)", done.stdout)
    assert len(rounds) == 8
    assert float(rounds[-1][1]) < 0.7 * float(rounds[0][1])
    sent, plain = (int(rounds[-1][i].replace(",", "")) for i in (2, 3))
    assert sent < plain / 100
