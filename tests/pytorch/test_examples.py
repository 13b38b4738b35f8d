"""examples/ddp, examples/outer_step and examples/pytorch, launched by torchrun on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import HANG_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"


def torchrun(processes: int, name: str, *options: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [*command, str(EXAMPLES / name / "train.py"), *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "ratio"), [("ddp", ["--steps", "40"], 20), ("outer_step", ["--rounds", "5"], 15)]
)
def test_an_example_trains_one_model_on_few_bytes(name: str, options: list[str], ratio: float) -> None:
    output = torchrun(2, name, *options)
    losses = [float(loss) for loss in re.findall(r"rank 0 \w+ \d+ loss ([\d.]+)", output)]
    assert losses[-1] < 0.85 * losses[0]
    ends = re.findall(r"sent ([\d,]+) bytes instead of ([\d,]+); model ([0-9a-f]{16})", output)
    assert len(ends) == 2
    assert len({digest for _, _, digest in ends}) == 1, "both processes hold the same model"
    for sent, plain, _ in ends:
        assert ratio * int(sent.replace(",", "")) < int(plain.replace(",", ""))


@pytest.mark.slow
def test_a_script_of_your_own_trains_on_few_bytes() -> None:
    output = torchrun(3, "pytorch", "--rounds", "8", "--steps", "5")
    rounds = re.findall(r"s +(\d+)  loss ([\d.]+)  ([\d,]+) bytes up, not ([\d,]+)", output)
    assert len(rounds) == 8
    assert float(rounds[-1][1]) < 0.7 * float(rounds[0][1])
    sent, plain = (int(rounds[-1][i].replace(",", "")) for i in (2, 3))
    assert sent < plain / 100
