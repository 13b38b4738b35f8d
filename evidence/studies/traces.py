"""What is kept of a run: its evaluations and a few numbers of its summary, a line of JSON in one file for each panel.

A crossing is where the logarithm of the loss, taken as straight between two evaluations, meets a level.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from adaquantfl.errors import DataError, Diverged
from adaquantfl.report import progress
from adaquantfl.runs.jobs import Job, play

FLOOR_GAIN = 0.05  # of the loss, in the last quarter of a run: with less it is at its floor
KEPT = (
    "rounds", "final_loss", "final_accuracy", "final_test_loss", "wire_bytes_up", "wire_bytes_down", "model_sha256",
    "seconds", "commit", "processor", "versions",
)  # fmt: skip


@dataclass(frozen=True)
class Trace:
    """One run.

    Attributes:
        losses: the global training loss of every evaluation, in the order of rounds.
        paper_bits: what one client had sent by then, by the paper's formula; empty with other quantizers.
        bytes_up: what all clients had sent by then.
        failure: why the run diverged; empty if it did not.
        ended: False if somebody stopped the run.
        summary: a few numbers of the run's summary.json.
    """

    method: str
    seed: int
    dimension: int
    losses: Sequence[float]
    paper_bits: Sequence[float]
    bytes_up: Sequence[float]
    failure: str = ""
    ended: bool = True
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def lowest(self) -> float:
        return min(self.losses)

    @property
    def at_floor(self) -> bool:
        """Whether it ended, and its last quarter lowered the loss by less than 5 %."""
        before = self.losses[: 3 * len(self.losses) // 4]
        return self.ended and not self.failure and bool(before) and self.lowest > (1 - FLOOR_GAIN) * min(before)

    def at(self, level: float, spent: Sequence[float]) -> float | None:
        """Return what was spent when the loss first reached a level, or None if it never did.

        >>> trace = Trace("4bit", 0, 10, (1.0, 0.25), (100.0, 300.0), (1.0, 3.0))
        >>> trace.at(0.5, trace.paper_bits), trace.at(0.1, trace.paper_bits)
        (200.0, None)
        """
        for place, loss in enumerate(self.losses):
            if loss <= level:
                if place == 0 or loss == level or loss <= 0:
                    return float(spent[place])
                before = self.losses[place - 1]
                share = math.log(before / level) / math.log(before / loss)
                return float(spent[place - 1] + share * (spent[place] - spent[place - 1]))
        return None


@dataclass(frozen=True)
class Cell:
    """A method's crossings of one level, one for each seed; None where a seed never reached it.

    stopped: how many of these were stopped before they could.
    """

    values: tuple[float | None, ...]
    stopped: int = 0

    @property
    def reached(self) -> tuple[float, ...]:
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """The mean over the seeds, if all of them reached the level."""
        return fmean(self.reached) if self.values and len(self.reached) == len(self.values) else None

    @property
    def missed(self) -> str:
        """Say in words that not all seeds reached the level."""
        if self.reached:
            return f"{len(self.reached)} of {len(self.values)} reached it"
        return "stopped before" if self.stopped else "never"

    @property
    def deviation(self) -> float:
        return stdev(self.reached) if len(self.reached) > 1 else 0.0


def cells(traces: Sequence[Trace], measure: str, levels: Sequence[float]) -> dict[float, Cell]:
    """Return a method's crossings; measure: "paper_bits", in units of d, or "bytes_up", in MB."""

    def price(one: Trace, level: float) -> float | None:
        found = one.at(level, getattr(one, measure))
        return None if found is None else found / (one.dimension if measure == "paper_bits" else 1e6)

    return {
        level: Cell(tuple(price(one, level) for one in traces), sum(stopped([one], level) for one in traces))
        for level in levels
    }


def stopped(traces: Sequence[Trace], level: float) -> bool:
    """Whether a run was stopped that might have reached a level."""
    return any(not one.ended and one.lowest > level for one in traces)


def load(path: Path) -> dict[str, list[Trace]]:
    """Return the kept runs of a panel by method, each in the order of seeds."""
    found: dict[str, list[Trace]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        one = Trace(**json.loads(line))
        found.setdefault(one.method, []).append(one)
    return {method: sorted(traces, key=lambda one: one.seed) for method, traces in found.items()}


def read(run: Path, method: str, seed: int, failure: str = "") -> Trace:
    """Return what is kept of a run directory."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    evaluated = [line for line in lines if line.get("loss") is not None]
    if not evaluated:
        raise DataError(f"{run}: no round of it was evaluated.")
    losses, sent = ([line[key] for line in evaluated] for key in ("loss", "wire_bytes_up"))
    bits = [line["paper_bits"] for line in evaluated if "paper_bits" in line]
    there = (run / "summary.json").exists()
    summary = json.loads((run / "summary.json").read_text()) if there else {}
    kept = {key: summary[key] for key in KEPT if summary.get(key) is not None}
    dimension = summary.get("dimension") or _dimension(lines[0])
    return Trace(method, seed, dimension, losses, bits, sent, failure, there or bool(failure), kept)


def keep(job: Job, method: str, panel: Path) -> None:
    """Carry a run out, or resume it, and add it to its panel's file, unless it is there already.

    A run that diverges is a result too, and is kept with the reason. Any other error ends the study.
    """
    seed = job.config.seed
    if any(one.seed == seed for one in load(panel).get(method, [])):
        return
    failure = ""
    try:
        with progress.shown(quiet=False) as display:
            play(job, display.of())
    except Diverged as error:
        failure = str(error)
    made = read(job.out, method, seed, failure)
    made.summary.setdefault("commit", current_commit())
    panel.parent.mkdir(parents=True, exist_ok=True)
    with panel.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(made)) + "\n")


def current_commit() -> str:
    """Return the commit of the code that runs, marked if files differ from it; "unknown" outside a checkout."""
    here = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src", "evidence/studies")
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _dimension(first: dict[str, Any]) -> int:
    """Return d of a run that has no summary, from its first round: C_s = d (b + 1) + 32 with one norm, or 32 d."""
    bits = float(first["paper_bits"])
    return round(bits / 32 if first["s"] is None else (bits - 32) / (float(first["bits_per_element"]) + 1))
