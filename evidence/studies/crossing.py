"""Where the paper's headline holds: batch size, norm and rounding, on a CNN an eighth of the paper's size.

    python -m evidence.studies.crossing                      run what is missing, then print the table
    python -m evidence.studies.crossing --batches 10,32      only these
    python -m evidence.studies.crossing --table              only print the table of what is recorded

24 runs a seed: batches of 10, 32 and 64, one norm or a norm per tensor, and AdaQuantFL with all levels of its bits
("power") and with the nearest whole number of levels, beside 2 and 4 bits. A run that is interrupted is resumed. One
that diverges is recorded as such.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from adaquantfl.names import unknown
from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from evidence.studies.paper import METHODS, of_method
from evidence.studies.traces import Trace, cells, keep, load

TASK = f"{Path(__file__).parent / 'tasks' / 'small_cnn.py'}:task"
RECORDS, WORK = Path("evidence") / "records" / "crossing", Path("runs") / "crossing"
BATCHES, SCOPES = (10, 32, 64), ("whole", "tensor")
COMPARED = ("adaquant", "adaquant-nearest", "2bit", "4bit")
SHOWN = (0.4, 0.3, 0.25, 0.15)
SETTINGS = {
    "clients": 8, "rounds": 300, "target_loss": 0.05, "tau": 10, "eta": 0.1, "downlink": "model",
    "evaluate_every": 10, "loss_samples": 0, "workers": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """One setting of the map."""

    batch: int
    scope: str

    @property
    def name(self) -> str:
        return f"batch-{self.batch}-{self.scope}"

    @property
    def title(self) -> str:
        return f"batch {self.batch}, {'one norm' if self.scope == 'whole' else 'a norm per tensor'}"


def places(batches: Sequence[int] = BATCHES) -> Iterator[Place]:
    """The settings, scope by scope."""
    return (Place(batch, scope) for scope in SCOPES for batch in batches)


def job(place: Place, method: str, seed: int, work: Path) -> Job:
    """One run."""
    changes = {**SETTINGS, **of_method(method), "batch_size": place.batch, "scope": place.scope, "seed": seed}
    return Job(load_config(TASK, changes), work / place.name / method / f"seed-{seed}")


def price(traces: Sequence[Trace], level: float) -> float | None:
    """Bits of one client to a loss in units of d, the mean over the seeds; None where one never reached it."""
    return cells(traces, "paper_bits", [level])[level].mean


def table(records: Path) -> str:
    """Every setting, every method: the bits to each loss, and how many times those of AdaQuantFL."""
    lines = [
        f"| setting | method | seeds | {' | '.join(f'loss {level:g}' for level in SHOWN)} | lowest loss |",
        "| --- | --- | ---: |" + " ---: |" * (len(SHOWN) + 1),
    ]
    for place in places():
        runs = load(records / f"{place.name}.jsonl")
        for method in COMPARED:
            if method not in runs:
                continue
            shown = [_cell(runs, method, level) for level in SHOWN]
            low = f"{min(one.lowest for one in runs[method]):.3g}"
            low += ", diverged" if any(one.failure for one in runs[method]) else ""
            lines.append(f"| {place.title} | {METHODS[method]} | {len(runs[method])} | {' | '.join(shown)} | {low} |")
    return "\n".join(lines)


def _cell(runs: dict[str, list[Trace]], method: str, level: float) -> str:
    bits, ours = price(runs[method], level), price(runs.get("adaquant", []), level)
    if bits is None:
        return "not reached"
    return f"{bits:.0f}" + (f" ({bits / ours:.2f}x)" if ours else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", default="10,32,64", help="separated by commas")
    parser.add_argument("--methods", default=",".join(COMPARED), help="separated by commas (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--table", action="store_true", help="only print the table of what is recorded")
    options = parser.parse_args(arguments)
    for method in options.methods.split(","):
        if method not in COMPARED:
            parser.error(unknown("method", method, COMPARED))
    if not options.table:
        for seed in range(options.seeds):
            for place in places([int(batch) for batch in options.batches.split(",")]):
                for method in options.methods.split(","):
                    keep(job(place, method, seed, options.work), method, options.records / f"{place.name}.jsonl")
    print(table(options.records))


if __name__ == "__main__":
    main()
