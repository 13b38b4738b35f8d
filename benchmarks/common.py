"""What the benchmarks share: their options, the entropy of levels, and a record on disk."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.protocol.arrays import Layout

# The paper's CNN with 8 clients, on the data that ships with the package, as all benchmarks have it.
CNN = {"dataset": "fashion-mnist-sample", "batch_size": 64, "scope": "tensor", "evaluate_every": 1000}


def options(description: str, **further: str) -> argparse.Namespace:
    """further: names of text options, and what they are for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, help="also write the record to this JSON file")
    for name, meaning in further.items():
        parser.add_argument(f"--{name}", default="", help=meaning)
    return parser.parse_args()


def entropy_bytes(levels: aq.Levels) -> float:
    """d times the entropy of the signed levels' histogram, in bytes."""
    counts = np.unique(levels.values, return_counts=True)[1]
    return float(-np.sum(counts * np.log2(counts / counts.sum()))) / 8


def cnn_updates(rounds: Sequence[int]) -> Iterator[tuple[int, np.ndarray, Layout]]:
    """Updates of the CNN's first client after so many rounds on the bundled sample: round, update, layout."""
    from adaquantfl.engines.local import LocalEngine
    from adaquantfl.runs.config import load_config
    from adaquantfl.runs.loop import Run

    config = load_config("fmnist-cnn-iid", {**CNN, "rule": "4bit"})
    engine = LocalEngine(config)
    try:
        run = Run(config, engine)
        layout = run.server.current.layout
        for done in range(max(rounds) + 1):
            if done in rounds:
                trained, _ = engine.player.trainer.train(0, run.server.weights, done, config.eta)
                yield done, layout.split(trained).weights - run.server.model.weights, layout
            if done < max(rounds):
                run.play_round(lambda line: None)
    finally:
        engine.close()


def record(out: Path | None, figures: dict[str, Any], quiet: bool = False) -> None:
    """Print the figures, unless quiet, and write them down with the versions they were measured with."""
    everything = {
        **figures,
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("adaquantfl", "numpy", "torch")},
    }
    text = json.dumps(everything, indent=2)
    if not quiet:
        print(text)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
