"""examples/ddp and examples/outer_step, launched by torchrun on this machine with two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import HANG_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["ddp", "outer_step"])
def test_an_example_has_under_60_lines(name: str) -> None:
    assert len((EXAMPLES / name / "train.py").read_text().splitlines()) < 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "ratio"), [("ddp", ["--steps", "40"], 20), ("outer_step", ["--rounds", "5"], 15)]
)
def test_an_example_trains_one_model_on_few_bytes(name: str, options: list[str], ratio: float) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(EXAMPLES / name / "train.py"), *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"rank 0 \w+ \d+ loss ([\d.]+)", done.stdout)]
    assert losses[-1] < 0.85 * losses[0]
    ends = re.findall(r"sent ([\d,]+) bytes instead of ([\d,]+); model ([0-9a-f]{16})", done.stdout)
    assert len(ends) == 2
    assert len({digest for _, _, digest in ends}) == 1, "both processes hold the same model"
    for sent, plain, _ in ends:
        assert ratio * int(sent.replace(",", "")) < int(plain.replace(",", ""))
