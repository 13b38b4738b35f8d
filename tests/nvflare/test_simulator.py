"""NVFlare's simulator runs a FedAvg job of two clients (tests/nvflare/job) with our filters and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
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
    """What the server got of every client in every round, the bytes of the models, and what was logged."""

    results: list[dict[str, Any]]
    down: list[int]
    log: str

    @property
    def losses(self) -> list[float]:
        """Of the model that each round began with."""
        return [next(one["loss"] for one in self.results if one["round"] == round) for round in range(ROUNDS)]

    @property
    def up(self) -> int:
        return sum(one["bytes"] for one in self.results)


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def played(*options: str) -> Played:
        folder = tmp_path_factory.mktemp("job")
        command = [sys.executable, JOB / "job.py", folder, "--rounds", str(ROUNDS), *options]
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        up, down = (
            [json.loads(line) for line in (folder / f"{way}.jsonl").read_text().splitlines()] for way in ("up", "down")
        )
        assert sorted((one["round"], one["client"]) for one in up) == [
            (round, client) for round in range(ROUNDS) for client in CLIENTS
        ]
        models = sorted(down, key=lambda one: one["round"])
        return Played(up, [one["bytes"] for one in models], done.stdout + done.stderr)

    return played


@pytest.mark.parametrize("options", [(), ("--torch",), ("--full",)])
def test_one_line_makes_both_directions_small_and_the_loss_falls_as_without(
    play: Any, options: tuple[str, ...]
) -> None:
    without, quantized = play(), play("--quantize", *options)
    assert 20 * quantized.up < without.up
    assert 8 * sum(quantized.down[2:]) < sum(without.down[2:])  # the first round has the whole model
    assert quantized.losses[0] == pytest.approx(without.losses[0])
    assert quantized.losses[-1] < 0.3 * quantized.losses[0]
    assert quantized.losses == pytest.approx(without.losses, abs=0.1)
    assert "bytes up and" in quantized.log


def test_a_damaged_reply_costs_only_its_client(play: Any) -> None:
    spoiled = play("--quantize", "--spoil", "site-1")
    assert "The reply is damaged" in spoiled.log
    assert spoiled.losses[-1] < 0.3 * spoiled.losses[0]


def test_a_round_of_damaged_replies_keeps_the_model(play: Any) -> None:
    spoiled = play("--quantize", "--spoil", "all")
    assert "no update could be used in this round; the model stays as it is" in spoiled.log
    assert spoiled.losses[1] == pytest.approx(spoiled.losses[2])
    assert spoiled.losses[3] < spoiled.losses[2]


def test_a_client_that_diverges_misses_its_round(play: Any) -> None:
    diverged = play("--quantize", "--diverges-in", "1")
    assert "the update of site-1 is dropped" in diverged.log
    assert diverged.losses[-1] < 0.3 * diverged.losses[0]
