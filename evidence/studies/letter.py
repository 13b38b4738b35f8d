"""The paper to the letter: one norm for the update (eq. 4), batches of 10, all levels that b_k bits can tell apart.

    adaquantfl run fmnist-cnn-letter-iid --set dataset=fashion-mnist-sample --set method=4bit --set seed=1 --out FOLDER

Records lie in letter/PANEL/METHOD/seed-K. A crossing is where the logarithm of the loss, taken as straight
between two evaluations, meets a level.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from adaquantfl.errors import DataError

RECORDS = Path("evidence") / "records" / "letter"
PANELS = {  # all on the bundled sample
    "fmnist-sample-cnn-iid": "i.i.d., fixed rate",
    "fmnist-sample-cnn-decay": "i.i.d., variable rate",
    "fmnist-sample-cnn-sorted": "sorted labels, fixed rate",
}
SLOW, FULL = "fmnist-sample-cnn-sorted-slow", "fmnist-full-cnn-iid"
RESNET, RESNET_DECAY, RESNET_SORTED = (f"cifar-part-narrow-resnet18-{name}" for name in ("iid", "decay", "sorted"))
WHOLE = {
    FULL: "all 60,000 pictures, i.i.d., fixed rate",
    "fmnist-full-cnn-decay": "all 60,000 pictures, i.i.d., variable rate",
}
SLOWER = {SLOW: "sorted labels, eta = 0.03"}  # on the sample, with a lower learning rate
TRIALS = {  # of ResNet-18, on 4,000 pictures, with a norm per tensor
    RESNET: "a quarter of the width, i.i.d.",
    RESNET_DECAY: "a quarter of the width, i.i.d., variable rate",
    RESNET_SORTED: "a quarter of the width, sorted labels",
    "cifar-part-resnet18-iid": "full width, i.i.d.",
}
METHODS = {
    "adaquant": "AdaQuantFL",
    "adaquant-nearest": "AdaQuantFL (nearest)",
    "adaquant-s0-4": "AdaQuantFL (s0 = 4)",
    "1bit": "1 bit",
    "2bit": "2 bits",
    "3bit": "3 bits",
    "4bit": "4 bits",
    "8bit": "8 bits",
    "16bit": "16 bits",
    "fp32": "float32",
}
LEVELS = (0.3, 0.2, 0.1, 0.05, 0.02)
ENOUGH_SEEDS = 3
FLOOR_GAIN = 0.05  # of the loss, in the last quarter of a run: with less it is at its floor


@dataclass(frozen=True)
class Trace:
    """One run: the evaluations, in the order of rounds. failure: why it diverged. ended: nobody stopped it."""

    method: str
    seed: int
    dimension: int
    losses: tuple[float, ...]
    paper_bits: tuple[float, ...]  # of one client
    bytes_up: tuple[float, ...]  # of all clients
    failure: str = ""
    ended: bool = True

    @property
    def lowest(self) -> float:
        return min(self.losses)

    @property
    def at_floor(self) -> bool:
        """Whether it ended, and its last quarter lowered the loss by less than 5 %."""
        before = self.losses[: 3 * len(self.losses) // 4]
        return self.ended and not self.failure and bool(before) and self.lowest > (1 - FLOOR_GAIN) * min(before)

    def at(self, level: float, spent: Sequence[float]) -> float | None:
        """What was spent when the loss reached a level: between two evaluations, linear in the loss's logarithm.

        >>> trace = Trace("4bit", 0, 10, (1.0, 0.25), (100.0, 300.0), (1.0, 3.0))
        >>> trace.at(0.5, trace.paper_bits), trace.at(0.1, trace.paper_bits)
        (200.0, None)
        """
        return crossing(self.losses, spent, level)


@dataclass(frozen=True)
class Cell:
    """A method's crossings of one level, one for each seed; None where a seed never got there.

    stopped: how many of these were stopped before they could.
    """

    values: tuple[float | None, ...]
    stopped: int = 0

    @property
    def reached(self) -> tuple[float, ...]:
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Over the seeds, where all of them got there."""
        return fmean(self.reached) if self.values and len(self.reached) == len(self.values) else None

    @property
    def missed(self) -> str:
        """In words, where not all of them got there."""
        if self.reached:
            return f"{len(self.reached)} of {len(self.values)} got there"
        return "stopped before" if self.stopped else "never"

    @property
    def deviation(self) -> float:
        return stdev(self.reached) if len(self.reached) > 1 else 0.0


def crossing(losses: Sequence[float], spent: Sequence[float], level: float) -> float | None:
    """What was spent when the loss first reached a level; between two evaluations, linear in the loss's logarithm."""
    for place, loss in enumerate(losses):
        if loss <= level:
            if place == 0 or loss == level or loss <= 0:
                return float(spent[place])
            before = losses[place - 1]
            share = math.log(before / level) / math.log(before / loss)
            return float(spent[place - 1] + share * (spent[place] - spent[place - 1]))
    return None


def load(panel: Path) -> dict[str, list[Trace]]:
    """A panel's runs by method, in the order of METHODS."""
    found = {method: [_read(path, method) for path in sorted((panel / method).glob("seed-*"))] for method in METHODS}
    return {method: traces for method, traces in found.items() if traces}


def cells(traces: Sequence[Trace], measure: str, levels: Sequence[float] = LEVELS) -> dict[float, Cell]:
    """The crossings of a method; measure: "paper_bits", in units of d, or "bytes_up", in MB."""

    def price(one: Trace, level: float) -> float | None:
        found = one.at(level, getattr(one, measure))
        return None if found is None else found / (one.dimension if measure == "paper_bits" else 1e6)

    return {
        level: Cell(tuple(price(one, level) for one in traces), sum(_stopped([one], level) for one in traces))
        for level in levels
    }


def verdict(panel: dict[str, list[Trace]], level: float) -> str:
    """Whether AdaQuantFL needs fewer paper bits than every fixed level with enough seeds: "yes", "no", or "open".

    It is open with too few seeds, where a fixed level with too few seeds is cheaper in one of them, where nobody got
    there, where a run was stopped that might have, and where float32 diverges too.
    """
    ours, rivals = panel.get("adaquant", []), judged(panel)
    if not rivals or len(ours) < ENOUGH_SEEDS or unstable(panel):
        return "open"
    mine = cells(ours, "paper_bits", [level])[level]
    fixed = [method for method in panel if method.endswith("bit")]
    best = {method: cells(panel[method], "paper_bits", [level])[level].reached for method in fixed}
    slowest = max(mine.reached) if mine.mean is not None else math.inf
    cheaper = {method for method, values in best.items() if values and min(values) <= slowest}
    if not any((mine.reached, *best.values())) or _stopped(ours, level):
        return "open"
    if cheaper & set(rivals):
        return "no"
    if cheaper or any(_stopped(panel[method], level) for method in fixed):
        return "open"
    return "yes" if mine.mean is not None else "no"


def _stopped(traces: Sequence[Trace], level: float) -> bool:
    """Whether a run was stopped that might have got to a level."""
    return any(not one.ended and one.lowest > level for one in traces)


def unstable(panel: dict[str, list[Trace]]) -> bool:
    """Whether training diverges without any noise of levels, so that it says nothing about them."""
    return any(one.failure for one in panel.get("fp32", []))


def judged(panel: dict[str, list[Trace]]) -> list[str]:
    """The fixed levels with enough seeds for a verdict."""
    return [method for method, traces in panel.items() if method.endswith("bit") and len(traces) >= ENOUGH_SEEDS]


def _read(path: Path, method: str) -> Trace:
    lines: list[dict[str, Any]] = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
    evaluated = [line for line in lines if line.get("loss") is not None]
    if not evaluated:
        raise DataError(f"{path}: no round of it was evaluated.")
    failure = path / "failure.json"
    losses, bits, sent = (
        tuple(float(line[key]) for line in evaluated) for key in ("loss", "paper_bits", "wire_bytes_up")
    )
    return Trace(
        method,
        int(path.name.removeprefix("seed-")),
        _dimension(lines[0]),
        losses,
        bits,
        sent,
        json.loads(failure.read_text())["error"] if failure.exists() else "",
        ended=failure.exists() or (path / "summary.json").exists(),
    )


def _dimension(first: dict[str, Any]) -> int:
    """d, from the first round's bits: C_s = d (b + 1) + 32 with one norm, and 32 d for float32."""
    bits = float(first["paper_bits"])
    return round(bits / 32 if first["s"] is None else (bits - 32) / (float(first["bits_per_element"]) + 1))
