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
    """What the server got of every client in every round, and what was logged."""

    results: list[dict[str, Any]]
    log: str

    @property
    def losses(self) -> list[float]:
        """Of the model that each round began with."""
        return [next(one["loss"] for one in self.results if one["round"] == round) for round in range(ROUNDS)]

    @property
    def bytes(self) -> int:
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
        results = [json.loads(line) for line in (folder / "sizes.jsonl").read_text().splitlines()]
        assert sorted((one["round"], one["client"]) for one in results) == [
            (round, client) for round in range(ROUNDS) for client in CLIENTS
        ]
        return Played(results, done.stdout + done.stderr)

    return played


def test_two_lines_make_the_uplink_small_and_the_loss_falls_as_without(play: Any) -> None:
    without, quantized = play(), play("--quantize")
    assert 12 * quantized.bytes < without.bytes  # the first four rounds, which are sent almost whole
    assert quantized.losses[0] == pytest.approx(without.losses[0])
    assert quantized.losses[-1] < 0.3 * quantized.losses[0]
    assert quantized.losses == pytest.approx(without.losses, abs=0.1)


def test_tensors_in_place_of_arrays(play: Any) -> None:
    quantized = play("--quantize", "--torch")
    assert quantized.losses == pytest.approx(play().losses, abs=0.1)
    assert 12 * quantized.bytes < play().bytes


def test_a_damaged_frame_costs_only_its_client(play: Any) -> None:
    spoiled = play("--quantize", "--spoil", "site-1")
    assert "the update of site-1 is dropped. The reply is damaged" in spoiled.log
    assert spoiled.losses[-1] < 0.3 * spoiled.losses[0]


def test_a_round_of_damaged_frames_keeps_the_model(play: Any) -> None:
    spoiled = play("--quantize", "--spoil", "all")
    assert "no update could be used in this round; the model stays as it is" in spoiled.log
    assert spoiled.losses[1] == pytest.approx(spoiled.losses[2])
    assert spoiled.losses[3] < spoiled.losses[2]


def test_a_client_that_diverges_misses_its_round(play: Any) -> None:
    diverged = play("--quantize", "--diverges-in", "1")
    assert "nothing is sent in round 1" in diverged.log
    assert diverged.losses[-1] < 0.3 * diverged.losses[0]


def test_whole_weights_pass_and_the_log_says_what_to_set(play: Any) -> None:
    full = play("--quantize", "--full")
    assert full.log.count("set params_transfer_type=TransferType.DIFF") == len(CLIENTS)
    assert full.bytes == pytest.approx(play().bytes, rel=0.01)
