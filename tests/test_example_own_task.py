"""examples/own_task: a language model as a task of one's own."""

from __future__ import annotations

import json
from pathlib import Path

from adaquantfl.cli import main

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_task"


def test_it_learns_on_few_bytes(tmp_path: Path) -> None:
    changes = {"clients": 2, "rounds": 10, "workers": 1, "loss_samples": 256, "evaluate_every": 10}
    options = [f"--set={key}={value}" for key, value in changes.items()]
    assert main(["run", str(EXAMPLE / "next_character.toml"), *options, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["final_test_loss"] < 0.8 * summary["initial_test_loss"]
    assert (
        summary["wire_bytes_up"] < 2 * 10 * 4 * summary["dimension"] / 20
    )  # ten rounds: the first ones are sent almost whole
