"""NVFlare's simulator runs a FedAvg job of two clients (tests/nvflare/job) with our filters and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare.apis")
pytest.importorskip("torch")

JOB = Path(__file__).parent / "job"
CLIENTS, ROUNDS = ["site-1", "site-2"], 4
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Played:
    """The loss of the model that each round began with, the bytes of each round in both directions, and the log."""

    losses: list[float]
    up: list[int]
    down: list[int]
    log: str


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def played(*options: str) -> Played:
        folder, env = tmp_path_factory.mktemp("job"), {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, JOB / "job.py", folder, *options]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        losses, sizes = [0.0] * ROUNDS, {"down": [0] * ROUNDS, "up": [0] * ROUNDS}
        for way, size in sizes.items():
            lines = [json.loads(line) for line in (folder / f"{way}.jsonl").read_text().splitlines()]
            assert sorted((one["round"], one["client"]) for one in lines) == list(product(range(ROUNDS), CLIENTS))
            for one in lines:
                size[one["round"]] += one["bytes"]
                losses[one["round"]] = one["loss"]  # of the replies in the end
        return Played(losses, **sizes, log=done.stdout + done.stderr)

    return played


@pytest.mark.parametrize("options", [(), ("--torch",), ("--full",)])
def test_one_line_makes_both_directions_small_and_the_loss_falls_as_without(
    play: Any, options: tuple[str, ...]
) -> None:
    without, quantized = play(), play("--quantize", *options)
    assert 20 * sum(quantized.up) < sum(without.up)
    assert 8 * sum(quantized.down[1:]) < sum(without.down[1:])  # the first round has the whole model
    assert quantized.losses[0] == pytest.approx(without.losses[0])
    assert quantized.losses[-1] < 0.3 * quantized.losses[0]
    assert quantized.losses == pytest.approx(without.losses, abs=0.1)
    assert "bytes up and" in quantized.log


def test_a_round_of_damaged_replies_keeps_the_model(play: Any) -> None:
    spoiled = play("--quantize", "--spoil")
    assert "no update could be used in this round; the model stays as it is" in spoiled.log
    assert spoiled.losses[1] == pytest.approx(spoiled.losses[2])
    assert spoiled.losses[3] < spoiled.losses[2]
