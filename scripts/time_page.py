"""Write the figure and tables of docs/when-not-to.md and the tables of docs/downlink.md from their records.

python scripts/time_page.py

Records: results/paper/fmnist-cnn-iid (whichever methods are there), results/wire and results/downlink/exact (the same
60 rounds with the plain and with the exact downlink), results/benchmarks/round.json for the time of computing.
"""

from __future__ import annotations

from pathlib import Path

from marked import write

from adaquantfl.report import tables
from adaquantfl.runs.records import RunRecord, load_run
from studies import panels, timing

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results"
PANEL = "fmnist-cnn-iid"
DRAWN = ("1 Mbit/s", "10 Mbit/s", "1000 Mbit/s")
ROUNDS = (1, 2, 10, 30, 60)  # told one by one


def runs() -> list[RunRecord]:
    """AdaQuantFL with both downlinks, then the other methods of the panel."""
    panel = next(panel for panel in panels.load_panels(RECORDS / "paper") if panel.name == PANEL)
    ours = panel.run("adaquant")
    assert ours is not None
    pair = timing.with_exact_downlink(ours, exact())
    return [*pair, *(run for run in panel.runs if run.method != "adaquant")]


def exact() -> RunRecord:
    return load_run(RECORDS / "downlink" / "exact")


def work() -> timing.Work:
    return timing.Work.measured(RECORDS / "benchmarks" / "round.json", clients=exact().config["clients"])


def parts() -> dict[Path, dict[str, str]]:
    """The pages and their generated parts."""
    found, computing = runs(), work()
    both = timing.traffic(load_run(RECORDS / "wire"), exact())
    return {
        ROOT / "docs" / "when-not-to.md": {
            "work": f"A client computes for {computing.client:.2f} s per round, {1000 * computing.encoding:.1f} ms of "
            f"it to quantize and encode. The server computes for {1000 * computing.server:.1f} ms.",
            "times": tables.markdown(timing.table(found, computing)),
            "verdicts": "\n".join(f"- {sentence}" for sentence in timing.verdicts(found, computing)),
        },
        ROOT / "docs" / "downlink.md": {
            "traffic": f"{tables.markdown(both)}\n\n{tables.markdown(timing.by_round(exact(), ROUNDS))}",
        },
    }


def main() -> None:
    for page, blocks in parts().items():
        write(page, blocks)
    timing.figure(runs(), work(), DRAWN).savefig(ROOT / "docs" / "figures" / "time.png", dpi=110)


if __name__ == "__main__":
    main()
