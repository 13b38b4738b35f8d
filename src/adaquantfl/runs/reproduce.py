"""The paper's setting, stated once: the panels of its figures 2 and 3, with AdaQuantFL, fixed bits and float32.

A panel is a preset: one norm, all levels that b_k bits can tell apart, s0 = 2, tau = 10, eta = 0.1, whole data sets.
Other panels change what the paper leaves open or what takes too long.
"""

from __future__ import annotations

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
    "fmnist-cnn-iid-batch-64": ("fmnist-cnn-iid", {"batch_size": 64, "rounds": 800}),
    "fmnist-sample-cnn-iid": ("fmnist-cnn-iid", _SAMPLE),
    "fmnist-sample-cnn-decay": ("fmnist-cnn-decay", _SAMPLE),
    "fmnist-sample-cnn-sorted": ("fmnist-cnn-sorted", _SAMPLE),
    "fmnist-sample-cnn-sorted-slow": ("fmnist-cnn-sorted", {**_SAMPLE, "eta": 0.03, "rounds": 400}),
    "cifar-resnet18-iid-tensor": ("cifar-resnet18-iid", {"scope": "tensor"}),
}
METHODS = "adaquant,2bit,3bit,4bit,8bit,fp32"


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
