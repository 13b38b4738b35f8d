"""How much the settings that the paper leaves open matter: one changed at a time, several seeds of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import load_config
from ..errors import ConfigError
from .comparison import Job

NAME = "sensitivity"  # of the preset, whose own values are one of each list
VALUES: dict[str, tuple[Any, ...]] = {
    "s0": (1, 2, 4, 8),
    "scope": ("whole", "tensor", 16384, 1024),
    "loss": ("full", "round"),
    "interval": (4.0, 16.0, 64.0),
    "rounding": ("nearest", "up", "down", "power"),
}
SEEDS = 3
RECORDS = Path("results") / NAME
WORK = Path("runs") / NAME


def jobs(methods: Sequence[str], changes: Mapping[str, Any], work: Path) -> list[Job]:
    """Every setting with the first seed, then with the next: an unfinished experiment has all settings."""
    if methods:
        raise ConfigError(f"reproduce {NAME} changes AdaQuantFL's settings, one at a time: leave --method away.")
    base = load_config(NAME, changes)
    settings: dict[str, dict[str, Any]] = {"preset": {}}
    for key, values in VALUES.items():
        for value in values:
            if value != getattr(base, key):
                settings[f"{key}-{value:g}" if isinstance(value, float) else f"{key}-{value}"] = {key: value}
    return [
        Job(load_config(NAME, {**changes, **setting, "seed": seed}), work / name / f"seed-{seed}")
        for seed in range(SEEDS)
        for name, setting in settings.items()
    ]
