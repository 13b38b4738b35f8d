"""The paper's experiments: one norm for the update (eq. 4), batches of 10, all levels that b_k bits can tell apart.

    python -m evidence.studies.paper                  run what has no record: every panel, every method, three seeds
    python -m evidence.studies.paper fmnist-sample-cnn-iid --methods 4bit,8bit --seeds 0,1

An interrupted run is resumed. A run of the CNN on the sample takes about 10 minutes on one core. Thresholds of
judgement are here and nowhere else.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from adaquantfl.names import unknown
from adaquantfl.report.tables import significant
from adaquantfl.runs import reproduce
from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from evidence.studies import traces
from evidence.studies.traces import Cell, Trace, cells, stopped

RECORDS, WORK = Path("evidence") / "records" / "paper", Path("runs") / "paper"
SLOW, FULL = "fmnist-sample-cnn-sorted-slow", "fmnist-full-cnn-iid"
BATCH_32, BATCH_64 = f"{FULL}-batch-32", f"{FULL}-batch-64"  # the paper does not give its batch size
RESNET_FULL = "cifar-full-resnet18-iid"
RESNET, RESNET_DECAY, RESNET_SORTED = (f"cifar-part-narrow-resnet18-{name}" for name in ("iid", "decay", "sorted"))
METHODS = {
    "adaquant": "AdaQuantFL",
    "adaquant-nearest": "AdaQuantFL (nearest)",
    "adaquant-s0-4": "AdaQuantFL (s0 = 4)",
    "adaquant-stall": "AdaQuantFL (stall = 8)",
    "2bit": "2 bits",
    "3bit": "3 bits",
    "4bit": "4 bits",
    "8bit": "8 bits",
    "fp32": "float32",
}
VARIANTS: dict[str, dict[str, Any]] = {  # methods that are another one with a setting of their own
    "adaquant-nearest": {"rule": "adaquant", "rule.rounding": "nearest"},
    "adaquant-s0-4": {"rule": "adaquant", "rule.s0": 4},
    "adaquant-stall": {"rule": "adaquant", "rule.stall": 8},
}
_PART = {
    "scope": "tensor", "clients": 4, "rounds": 800, "target_loss": 0.02, "tau": 10, "eta": 0.1,
    "batch_size": 10, "evaluate_every": 10, "downlink": "model", "loss_samples": 0,
}  # fmt: skip
_RESNET = Path(__file__).parent / "tasks" / "resnet.py"
PANELS: dict[str, tuple[str, dict[str, Any]]] = {  # a preset or a task, and what is changed of it
    **{name: reproduce.PANELS[name] for name in reproduce.PANELS if name.startswith("fmnist-sample")},
    FULL: reproduce.PANELS["fmnist-cnn-iid"],
    BATCH_32: reproduce.PANELS["fmnist-cnn-iid-batch-32"],
    BATCH_64: reproduce.PANELS["fmnist-cnn-iid-batch-64"],
    RESNET_FULL: reproduce.PANELS["cifar-resnet18-iid-tensor"],
    RESNET: (f"{_RESNET}:narrow", _PART),
    RESNET_DECAY: (f"{_RESNET}:narrow", {**_PART, "eta_decay": 0.9, "eta_decay_every": 100}),
    RESNET_SORTED: (f"{_RESNET}:narrow_sorted", _PART),
    "cifar-part-resnet18-iid": (f"{_RESNET}:full", {**_PART, "rounds": 300}),
}
ENOUGH_SEEDS = 3
TARGET = 0.02  # the loss that the paper's headlines are about
FEWEST = "AdaQuantFL reaches a low loss with fewer bits than every fixed level"
ELSEWHERE = {  # panels that end above the paper's loss: the figure that they are about, and the loss to compare at
    FULL: ("figure 3 (a), CNN, on the whole data set", 0.25),
    BATCH_32: ("figure 3 (a), CNN, on the whole data set, batches of 32", 0.1),
    SLOW: ("figure 3 (c), CNN, sorted labels", 0.4),
    RESNET: ("figure 2 (a), ResNet-18", 0.3),
    RESNET_DECAY: ("figure 2 (b), ResNet-18, variable rate", 0.4),
    RESNET_SORTED: ("figure 2 (c), ResNet-18, sorted labels", 1.5),
}
Outcome = Literal["not reproduced", "partly reproduced", "reproduced", "open"]
Panel = Mapping[str, Sequence[Trace]]  # the runs of each method


@dataclass(frozen=True)
class Verdict:
    """What the paper says and where, whether it is so here, and the figures that say so."""

    claim: str
    where: str
    outcome: Outcome
    here: str


def load(records: Path, panel: str) -> dict[str, list[Trace]]:
    """Return a panel's runs by method, in the order of METHODS."""
    found = traces.load(records / f"{panel}.jsonl")
    return {method: found[method] for method in METHODS if method in found}


def cheapest(panel: Panel, level: float) -> str:
    """Whether AdaQuantFL needs fewer paper bits than every fixed level with enough seeds: "yes", "no", or "open".

    It is open with too few seeds, where a fixed level with too few seeds is cheaper in one of them, where nobody
    reached the level, where a run was stopped that might have, and where float32 diverges too.
    """
    ours, rivals = panel.get("adaquant", []), judged(panel)
    if not rivals or len(ours) < ENOUGH_SEEDS or unstable(panel):
        return "open"
    mine = cells(ours, "paper_bits", [level])[level]
    fixed = [method for method in panel if method.endswith("bit")]
    best = {method: cells(panel[method], "paper_bits", [level])[level].reached for method in fixed}
    slowest = max(mine.reached) if mine.mean is not None else math.inf
    cheaper = {method for method, values in best.items() if values and min(values) <= slowest}
    if not any((mine.reached, *best.values())) or stopped(ours, level):
        return "open"
    if cheaper & set(rivals):
        return "no"
    if cheaper or any(stopped(panel[method], level) for method in fixed):
        return "open"
    return "yes" if mine.mean is not None else "no"


def unstable(panel: Panel) -> bool:
    """Whether training diverges without any noise of levels, so that it says nothing about them."""
    return any(one.failure for one in panel.get("fp32", []))


def judged(panel: Panel) -> list[str]:
    """Return the fixed levels with enough seeds for a verdict."""
    return [method for method, runs in panel.items() if method.endswith("bit") and len(runs) >= ENOUGH_SEEDS]


def verdicts(records: Path) -> list[Verdict]:
    """Return the headlines about the CNN, judged on the bundled sample."""
    iid, decay, by_label = (load(records, f"fmnist-sample-cnn-{name}") for name in ("iid", "decay", "sorted"))
    sample = "on a sample of 10,000 pictures"
    better = cheapest({name: decay[name] for name in ("adaquant", "4bit") if name in decay}, TARGET)
    outcomes: dict[str, Outcome] = {"yes": "not reproduced", "no": "reproduced", "open": "open"}
    variable = Verdict(
        "with a variable rate AdaQuantFL cannot do better than 4 bits",
        f"figure 3 (b), CNN, {sample}",
        outcomes[better],
        f"to loss {TARGET:g}, {_against(decay, TARGET)}.",
    )
    return [fewest_bits(iid, f"figure 3 (a), CNN, {sample}", TARGET), variable, _floor(by_label, sample)]


def fewest_bits(panel: Panel, where: str, level: float) -> Verdict:
    """Judge whether AdaQuantFL needs the fewest bits to a loss."""
    outcomes: dict[str, Outcome] = {"yes": "reproduced", "no": "not reproduced", "open": "open"}
    return Verdict(FEWEST, where, outcomes[cheapest(panel, level)], f"to loss {level:g}, {_against(panel, level)}.")


def _floor(panel: Panel, sample: str) -> Verdict:
    lowest = {method: min(one.lowest for one in runs) for method, runs in panel.items()}
    ours = lowest.pop("adaquant", math.inf)
    fixed = [low for method, low in lowest.items() if method.endswith("bit")]
    outcome: Outcome = "not reproduced"
    if not fixed or len(panel.get("adaquant", ())) < ENOUGH_SEEDS or unstable(panel):
        outcome = "open"
    elif ours < min(fixed):
        outcome = "reproduced" if ours <= TARGET else "partly reproduced"
    texts = []
    for method, runs in panel.items():
        failed = sum(bool(one.failure) for one in runs)
        end = f", {failed} of {len(runs)} diverged" if failed else ""
        texts.append(f"{METHODS[method]} {significant(min(one.lowest for one in runs))}{end}")
    claim = f"with sorted labels AdaQuantFL has the lowest error floor, {TARGET:g}; the other methods' are higher"
    return Verdict(claim, f"figure 3 (c), CNN, {sample}", outcome, f"lowest losses: {'; '.join(texts)}.")


def _against(panel: Panel, level: float) -> str:
    ours = cells(panel.get("adaquant", ()), "paper_bits", [level])[level]
    texts = []
    for method in (name for name in panel if name.endswith("bit")):
        theirs = cells(panel[method], "paper_bits", [level])[level]
        if theirs.mean is None:
            price = theirs.missed
        else:
            price = f"{theirs.mean / ours.mean:.2f} times its bits" if ours.mean else f"sent {theirs.mean:.0f} d"
        texts.append(f"{METHODS[method]} {price} ({seeds(theirs)})")
    sent = ours.missed if ours.mean is None else f"sent {ours.mean:.0f} d bits per client"
    return "; ".join([f"AdaQuantFL {sent} ({seeds(ours)})", *([", ".join(texts)] if texts else [])])


def seeds(cell: Cell) -> str:
    """Return "1 seed" or "3 seeds"."""
    return f"{len(cell.values)} seed{'' if len(cell.values) == 1 else 's'}"


def job(panel: str, method: str, seed: int, work: Path = WORK) -> Job:
    """Return one run of a panel."""
    source, changes = PANELS[panel]
    settings = {**changes, **of_method(method), "seed": seed, "workers": 1}
    return Job(load_config(source, settings), work / panel / method / f"seed-{seed}")


def of_method(method: str) -> dict[str, Any]:
    """Return a method's settings."""
    return VARIANTS.get(method, {"rule": method})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("panels", nargs="*", help=f"one or more of: {', '.join(PANELS)} (default: all)")
    parser.add_argument("--methods", default=",".join(METHODS), help="separated by commas (default: %(default)s)")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas (default: %(default)s)")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--work", type=Path, default=WORK)
    options = parser.parse_args(arguments)
    methods = options.methods.split(",")
    for word, given, known in (("panel", options.panels, PANELS), ("method", methods, METHODS)):
        for name in given:
            if name not in known:
                parser.error(unknown(word, name, tuple(known)))
    for panel in options.panels or PANELS:
        for seed in map(int, options.seeds.split(",")):
            for method in methods:
                traces.keep(job(panel, method, seed, options.work), method, options.records / f"{panel}.jsonl")


if __name__ == "__main__":
    main()
