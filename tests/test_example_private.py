"""examples/private: 100 clients in four processes, with drop-outs, up to the budget."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "private" / "hundred.py"


@pytest.mark.slow
def test_a_hundred_clients_learn_until_the_budget_is_spent() -> None:
    pytest.importorskip("dp_accounting")
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    *rounds, last = done.stdout.strip().splitlines()
    found = [
        re.fullmatch(r"round \d+: (\d+) clients in the sum, ([\d.]+) bits.* accuracy ([\d.]+)%, epsilon ([\d.]+)", line)
        for line in rounds
    ]
    assert all(found)
    clients, bits, accuracy, epsilon = zip(*(map(float, one.groups()) for one in found if one), strict=True)
    assert len(rounds) > 8
    assert 70 <= min(clients) < max(clients) < 100  # some dropped out in every round
    assert max(bits) <= 4.0
    assert accuracy[-1] > 70 > accuracy[0]
    assert 6 < epsilon[-1] <= 8
    assert "so far it is" in last
