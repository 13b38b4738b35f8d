"""Where a CNN round's time goes (8 clients, tau 10, batch 64), and local SGD against a plain PyTorch loop.

The plain loop runs over the same batches of the same clients, with PyTorch's own defaults (all cores, one process).
Both are timed in turn within one run, several times, and compared by their fastest.

    python benchmarks/round.py [--out evidence/records/benchmarks/round.json]
"""

from __future__ import annotations

import time
from typing import Any

import torch

from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs.config import load_config
from adaquantfl.runs.loop import Run
from adaquantfl.training import models
from common import CNN, options, record

ROUNDS = 6


def plain_round(engine: LocalEngine, round: int, threads: int) -> float:
    """tau steps for every client, as most people would write it."""
    torch.set_num_threads(threads)
    trainer, config = engine.player.trainer, engine.config
    model = models.build("cnn", 0)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    began = time.perf_counter()
    for client in range(config.clients):
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=config.eta)
        for batch in trainer._batches(client, round):
            x, y = trainer.task.train.batch(batch)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return time.perf_counter() - began


def measure() -> dict[str, Any]:
    config = load_config("fmnist-cnn-iid", {**CNN, "rule": "2bit"})
    engine = LocalEngine(config)
    try:
        run = Run(config, engine)
        rounds, plain = [], {1: [], engine.workers: []}
        for k in range(ROUNDS):
            rounds.append(run.play_round(lambda line: None)["seconds"])
            for threads in plain:
                plain[threads].append(plain_round(engine, k, threads))
    finally:
        engine.close()
    best = min(rounds[1:], key=lambda seconds: seconds["round"])
    # The clients' training is spread over the workers; all else is overhead.
    training = best["train"] / engine.workers
    return {
        "preset": "fmnist-cnn-iid on the bundled sample, batch 64, method 2bit",
        "workers": engine.workers,
        "round_seconds": best["round"],
        "local_sgd_seconds": training,
        "share_not_local_sgd": 1 - training / best["round"],
        "encode_seconds_per_worker": best["encode"] / engine.workers,
        "aggregate_seconds": best["aggregate"],
        "plain_loop_seconds_by_threads": {str(threads): min(times) for threads, times in plain.items()},
        "plain_loop_over_our_round": min(min(times) for times in plain.values()) / best["round"],
    }


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    record(arguments.out, measure())
