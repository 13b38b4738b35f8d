"""Private rounds: test accuracy against rounds without masks, bits, and the time that masks take.

    python -m evidence.studies.private accuracy     evidence/records/private/accuracy.jsonl, one line a run
    python -m evidence.studies.private time         evidence/records/private/time.json, a minute

A run that is in the record already is not played again. Accuracy is the mean of a run's last three evaluations.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from adaquantfl.bench.tasks import PICTURES
from adaquantfl.private.collector import Collector
from adaquantfl.private.contributor import Contributor
from adaquantfl.private.masks import Words
from adaquantfl.runs.config import load_config
from adaquantfl.runs.loop import run
from adaquantfl.runs.records import load_run
from adaquantfl.training.task import Task
from adaquantfl.training.trainer import Trainer
from evidence.studies.traces import current_commit

RECORDS = Path("evidence") / "records" / "private"
SEEDS = (0, 1, 2)
_BOTH = {"rule": "fp32", "workers": 1, "loss_samples": 64, "evaluate_every": 5, "checkpoint_every": 1000}
TASKS: dict[str, dict[str, Any]] = {
    "MLP, 100 clients": {
        "dataset": "fashion-mnist", "model": "mlp", "clients": 100, "tau": 10, "batch_size": 32, "rounds": 40,
    },
    "CNN, 10 clients": {
        "dataset": "fashion-mnist", "model": "cnn", "clients": 10, "tau": 5, "batch_size": 32, "rounds": 30,
    },
}  # fmt: skip
_LEFT_OUT = ("CNN, 10 clients", "masked, 8 bits")  # 5 bits are enough for 10 clients
_NOISE = {"noise": 1.0, "clip": 0.3, "epsilon": 1000.0}
MODES: dict[str, dict[str, Any]] = {
    "float32, no masks": {"name": "off"},
    "masked, 8 bits": {"name": "masked", "bits": 8.0},
    "masked, 1 bit": {"name": "masked", "bits": 1.0},
    "central, 1 bit": {"name": "central", "bits": 1.0, **_NOISE},
    "distributed, 1 bit": {"name": "distributed", "bits": 1.0, **_NOISE},
}
_SILENT = tuple(MODES)[:3]
# Noise was tried with one seed.
PLAYED = [(task, mode, seed) for seed in SEEDS for task in TASKS for mode in _SILENT if (task, mode) != _LEFT_OUT]
PLAYED += [("MLP, 100 clients", mode, 0) for mode in tuple(MODES)[3:]]
# Of the CNN of the paper's experiments, which has 1,663,370 parameters.
CLIENTS, DIMENSION, TRAINED = 100, 1_663_370, 4


def accuracy() -> None:
    """Play what is missing."""
    path = RECORDS / "accuracy.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    done = {(row["task"], row["mode"], row["seed"]) for row in map(json.loads, lines)}
    for task, mode, seed in PLAYED:
        if (task, mode, seed) not in done:
            row = {"task": task, "mode": mode, "seed": seed, **play(TASKS[task], MODES[mode], seed)}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def play(task: Mapping[str, Any], mode: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One run, and what it came to."""
    with TemporaryDirectory() as folder:
        config = load_config("demo", {**PICTURES, **_BOTH, **task, "private": dict(mode), "seed": seed})
        out = Path(folder, "run")
        summary = run(config, out)
        history = load_run(out).history
    evaluated = [line["test_accuracy"] for line in history if "test_accuracy" in line]
    elements = summary["dimension"] * config.clients * config.rounds
    seconds = {name: sum(line["seconds"][name] for line in history) for name in ("train", "encode", "aggregate")}
    return {
        "accuracy": round(fmean(evaluated[-3:]), 5),
        "masked_bits": summary.get("mean_masked_bits"),
        "sent_bits": round(8 * summary["wire_bytes_up"] / elements, 4),
        "epsilon": summary.get("epsilon"),
        "levels": [line["s"] for line in history][-1],
        "clipped": sum(line.get("clipped_coordinates", 0) for line in history),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "commit": current_commit(),
    }


def times() -> None:
    """Processor time of masks for 100 clients, against that of their local training."""
    torch.set_num_threads(1)
    config = load_config("fmnist-cnn-iid", {"rule": "fp32", "clients": CLIENTS, "workers": 1})
    trainer = Trainer(config, Task.of(config))
    weights = trainer.weights()
    trainer.train(0, weights, 0, config.eta)  # what is only slow once
    training = CLIENTS / TRAINED * used(lambda: [trainer.train(n, weights, 0, config.eta) for n in range(TRAINED)])
    found = {name: _masking(count) for name, count in (("8 bits", DIMENSION), ("1 bit", DIMENSION // 8))}
    about = {"clients": CLIENTS, "dimension": DIMENSION, "tau": config.tau, "batch_size": config.batch_size}
    record = {**about, "training": round(training, 2), "masks": found, "commit": current_commit()}
    RECORDS.mkdir(parents=True, exist_ok=True)
    Path(RECORDS, "time.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _masking(count: int) -> dict[str, float]:
    """Seconds of all clients together, and of the server, with 30 of 100 clients gone before the masked update."""
    words = Words(count, 8, 12)
    collector = Collector(words, range(CLIENTS), CLIENTS - 30, 0.1)
    clients = {n: Contributor(n, collector.session, words.bits, *words.zeros()) for n in range(CLIENTS)}
    messages: Mapping[int, bytes] = dict.fromkeys(clients, b"")
    spent = {"clients": 0.0, "server": 0.0}
    for step in range(4):
        for number, message in messages.items():
            if step != 2 or number >= 30:
                began = time.process_time()
                reply = clients[number].answer(message) if step else clients[number].advertise()
                spent["clients"] += time.process_time() - began
                spent["server"] += used(partial(collector.receive, number, reply))
        began = time.process_time()
        messages = collector.advance()
        spent["server"] += time.process_time() - began
    assert collector.sum is not None
    assert not np.any(collector.sum[0])
    return {name: round(value, 3) for name, value in spent.items()}


def used(work: Callable[[], object]) -> float:
    """The processor time of this process that some work takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    {"accuracy": accuracy, "time": times}[sys.argv[1]]()
