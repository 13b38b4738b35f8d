"""Our rule and its rivals on measured bytes: three partitions, three seeds, the same quantizer and codec for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import load_config
from .comparison import Job
from .methods import parse

NAME = "rivals"  # of the preset
PARTITIONS = {"iid": "iid", "sorted": "sorted", "dirichlet": "dirichlet(0.3)"}
METHODS = (
    "cost-aware",
    "dadaquant-time",
    "adaquant",
    "adaquant[s0=1]",
    "2bit",
    "dadaquant-time[scope=balanced]",
    "cosine",
    "fp32",
)
SEEDS = 3
RECORDS = Path("results") / NAME
WORK = Path("runs") / NAME


def jobs(methods: Sequence[str], changes: Mapping[str, Any], work: Path) -> list[Job]:
    """Every method and partition with the first seed, then with the next: an unfinished experiment has all of them."""
    chosen = [parse(name) for name in methods or METHODS]
    return [
        Job(
            load_config(NAME, {"partition": partition, **changes, **method.settings, "seed": seed}),
            work / folder / method.folder / f"seed-{seed}",
        )
        for seed in range(SEEDS)
        for folder, partition in PARTITIONS.items()
        for method in chosen
    ]
