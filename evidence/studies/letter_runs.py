"""Runs of the panels to the letter: what has a record is skipped, what was interrupted is resumed.

    python -m evidence.studies.letter_runs  every panel, every method, three seeds
    python -m evidence.studies.letter_runs fmnist-sample-cnn-iid --methods 4bit,8bit --seeds 0,1

A run that diverges is recorded as such. A run of the CNN on the sample takes about 10 minutes on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adaquantfl.names import unknown
from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from evidence.studies import reproduce
from evidence.studies.letter import METHODS, RECORDS

WORK = Path("runs") / "letter"
SAMPLE = {"dataset": "fashion-mnist-sample"}
# A pass over all 60,000 pictures would take longer than the rounds between two evaluations.
WHOLE = {"loss_samples": 1000, "rounds": 700}
NARROW = {
    "scope": "tensor", "clients": 4, "rounds": 800, "target_loss": 0.02, "tau": 10, "eta": 0.1, "s0": 2,
    "batch_size": 10, "evaluate_every": 10, "downlink": "model", "loss_samples": 0,
}  # fmt: skip
DECAY = {"eta_decay": 0.9, "eta_decay_every": 100}
VARIANTS: dict[str, dict[str, Any]] = {  # methods that are another one with a setting of their own
    "adaquant-nearest": {"method": "adaquant", "rounding": "nearest"},
    "adaquant-s0-4": {"method": "adaquant", "s0": 4},
}
_RESNET = f"{Path(__file__).parent / 'tasks' / 'narrow_resnet.py'}"
_FULL_WIDTH = f"{Path(__file__).parent / 'tasks' / 'resnet.py'}"
PANELS: dict[str, tuple[str, dict[str, Any]]] = {  # a preset or a task, and what is changed of it
    "fmnist-sample-cnn-iid": ("fmnist-cnn-letter-iid", SAMPLE),
    "fmnist-sample-cnn-decay": ("fmnist-cnn-letter-decay", SAMPLE),
    "fmnist-sample-cnn-sorted": ("fmnist-cnn-letter-sorted", SAMPLE),
    "fmnist-sample-cnn-sorted-slow": ("fmnist-cnn-letter-sorted", {**SAMPLE, "eta": 0.03, "rounds": 400}),
    "fmnist-full-cnn-iid": ("fmnist-cnn-letter-iid", WHOLE),
    "fmnist-full-cnn-decay": ("fmnist-cnn-letter-decay", WHOLE),
    "cifar-part-narrow-resnet18-iid": (f"{_RESNET}:batch_norm", NARROW),
    "cifar-part-narrow-resnet18-decay": (f"{_RESNET}:batch_norm", {**NARROW, **DECAY}),
    "cifar-part-narrow-resnet18-sorted": (f"{_RESNET}:batch_norm_sorted", NARROW),
    "cifar-part-resnet18-iid": (f"{_FULL_WIDTH}:batch_norm", {**NARROW, "rounds": 300}),
    "cifar-part-narrow-resnet18-one-norm": (f"{_RESNET}:group_norm", {**NARROW, "scope": "whole"}),
}


def job(panel: str, method: str, seed: int, work: Path = WORK) -> Job:
    """One run of a panel."""
    source, changes = PANELS[panel]
    settings = {**changes, **of_method(method), "seed": seed, "workers": 1}
    return Job(load_config(source, settings), work / panel / method / f"seed-{seed}")


def of_method(method: str) -> dict[str, Any]:
    """The settings of a method. AdaQuantFL uses all levels of its bits, except where a variant says otherwise."""
    return {"rounding": "power", **VARIANTS.get(method, {"method": method})}


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers separated by commas, got {text!r}") from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("panels", nargs="*", help=f"one or more of: {', '.join(PANELS)} (default: all)")
    parser.add_argument("--methods", default=",".join(METHODS), help="separated by commas (default: %(default)s)")
    parser.add_argument("--seeds", type=_numbers, default=(0, 1, 2), help="separated by commas (default: 0,1,2)")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--work", type=Path, default=WORK)
    options = parser.parse_args(arguments)
    methods = options.methods.split(",")
    for word, given, known in (("panel", options.panels, PANELS), ("method", methods, METHODS)):
        for name in given:
            if name not in known:
                parser.error(unknown(word, name, tuple(known)))
    for panel in options.panels or PANELS:
        for seed in options.seeds:
            for method in methods:
                reproduce.carry_out_to_any_end(job(panel, method, seed, options.work), options.records, options.work)


if __name__ == "__main__":
    main()
