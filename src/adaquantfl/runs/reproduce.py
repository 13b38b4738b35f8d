"""The panels of the paper's figures 2 and 3: a preset each, with AdaQuantFL, fixed numbers of bits and float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..names import unknown
from . import jobs
from .methods import parse_list

PANELS = tuple(f"{task}-{kind}" for task in ("fmnist-cnn", "cifar-resnet18") for kind in ("iid", "decay", "sorted"))
METHODS = "adaquant,2bit,3bit,4bit,8bit,fp32"


def plan(panel: str, methods: str, seeds: int, changes: Mapping[str, Any], out: Path) -> list[jobs.Job]:
    """Return the runs of a panel; every configuration is checked before the first run starts."""
    if panel not in PANELS:
        raise ConfigError(unknown("panel", panel, PANELS))
    return jobs.plan(panel, parse_list(methods), seeds, changes, out)


def effort(runs: Sequence[jobs.Job]) -> str:
    """Say what the runs take, so that nobody starts hours of training by mistake."""
    config = runs[0].config
    rounds = sum(job.config.rounds for job in runs)
    steps = rounds * config.clients * config.tau
    return (
        f"{len(runs)} runs with {rounds:,} rounds in all, if none reaches loss {config.target_loss:g} before: "
        f"{steps:,} local steps of {config.batch_size} examples ({config.model}, {config.dataset}). It may be stopped "
        "at any time; the same command resumes it."
    )
