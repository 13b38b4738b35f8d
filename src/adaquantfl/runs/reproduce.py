"""The paper's setting, stated once: the panels of its figures 2 and 3, with AdaQuantFL, fixed bits and float32.

A panel is a preset: one norm, all levels that b_k bits can tell apart, s0 = 2, tau = 10, eta = 0.1, whole data sets.
Other panels change what the paper leaves open or what takes too long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..names import unknown
from ..training import catalogue
from ..training.datasets import path_of
from . import jobs
from .methods import parse_list

PRESETS = tuple(f"{task}-{kind}" for task in ("fmnist-cnn", "cifar-resnet18") for kind in ("iid", "decay", "sorted"))
_SAMPLE = {"dataset": "fashion-mnist-sample", "rounds": 600, "loss_samples": 0}
PANELS: dict[str, tuple[str, dict[str, Any]]] = {  # a preset, and what is changed of it
    **{name: (name, {}) for name in PRESETS},
    "fmnist-cnn-iid-batch-32": ("fmnist-cnn-iid", {"batch_size": 32, "rounds": 1000}),
    "fmnist-sample-cnn-iid": ("fmnist-cnn-iid", _SAMPLE),
    "fmnist-sample-cnn-decay": ("fmnist-cnn-decay", _SAMPLE),
    "fmnist-sample-cnn-sorted": ("fmnist-cnn-sorted", _SAMPLE),
    "fmnist-sample-cnn-sorted-slow": ("fmnist-cnn-sorted", {**_SAMPLE, "eta": 0.03, "rounds": 400}),
    "cifar-resnet18-iid-tensor": ("cifar-resnet18-iid", {"scope": "tensor"}),
}
METHODS = "adaquant,2bit,3bit,4bit,8bit,fp32"
_MODELS = 3  # that a run's folder holds at most: the last one, and two checkpoints while one replaces the other


def plan(panel: str, methods: str, seeds: int, changes: Mapping[str, Any], out: Path) -> list[jobs.Job]:
    """Return the runs of a panel; every configuration is checked before the first run starts."""
    if panel not in PANELS:
        raise ConfigError(unknown("panel", panel, tuple(PANELS)))
    preset, own = PANELS[panel]
    return jobs.plan(preset, parse_list(methods), seeds, {**own, **changes}, out)


def effort(runs: Sequence[jobs.Job]) -> str:
    """Say what the runs take and which data, so that nobody starts hours of training by mistake."""
    config = runs[0].config
    spec = catalogue.find(config.dataset)
    data = "here" if path_of(spec).is_file() else f"not here: adaquantfl data get {spec.name}"
    rounds = sum(job.config.rounds for job in runs)
    steps = rounds * config.clients * config.tau
    return (
        f"{len(runs)} runs with {rounds:,} rounds in all, if none reaches loss {config.target_loss:g} before: "
        f"{steps:,} local steps of {config.batch_size} examples ({config.model}). The data set {spec.name}, "
        f"{spec.size / 1e6:.0f} MB, is {data}. It may be stopped at any time; the same command resumes it."
    )


def measured(runs: Sequence[jobs.Job]) -> str:
    """Say how long that is on this machine, and how much of the disk it may fill; a client's round is played for it."""
    from ..training.task import Task
    from ..training.trainer import Trainer

    config = runs[0].config
    trainer = Trainer(config, Task.of(config))
    weights, seconds = trainer.weights(), list[float]()
    for _ in range(2):  # the first one also warms up
        began = time.perf_counter()
        trainer.train(0, weights, 0, config.eta)
        seconds.append(time.perf_counter() - began)
    began, looked = time.perf_counter(), 256
    trainer.losses(0, looked, weights)
    each = (time.perf_counter() - began) / looked
    size = sum(array.nbytes for array in weights.values())
    samples = sum(min(len(part), config.loss_samples or len(part)) for part in trainer.task.parts)
    tests = len(trainer.task.test) if trainer.task.test is not None else 0
    total = sum(
        job.config.rounds * (config.clients * seconds[1] + each * (samples + tests) / config.evaluate_every)
        for job in runs
    )
    return (
        f"A client's round takes {1000 * seconds[1]:.0f} ms here, so that all take about {total / 3600:.1f} hours of "
        f"one core, and up to {_MODELS * len(runs) * size / 1e6:,.0f} MB of the disk."
    )
