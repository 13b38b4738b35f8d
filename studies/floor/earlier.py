"""The CNN with i.i.d. data, seed 0, from records of other studies: the same target, 60 rounds for all."""

from __future__ import annotations

import json
from pathlib import Path

from studies.floor.records import Record
from studies.floor.tables import number

ROUNDS = 60
FLOAT32, OURS = "float32", "cost-aware, centroid"
RUNS = {
    FLOAT32: "ablation/cnn-8-clients/float32",
    OURS: "rivals-new-rule/iid/cost-aware+centroid",
    "s = 0.1, centroid": "ablation/cnn-8-clients/s-0.1-centroid-balanced",
    "s = 0.25, centroid": "ablation/cnn-8-clients/s-0.25-centroid-balanced",
    "AdaQuantFL, s0 = 2": "rivals/iid/adaquant",
    "DAdaQuant, time only, s0 = 1": "rivals/iid/dadaquant-time",
    "QSGD, 2 bits, entropy-coded": "rivals/iid/2bit",
}


def load(results: Path) -> dict[str, Record]:
    """The runs by name."""
    return {name: _read(name, results / path / "seed-0") for name, path in RUNS.items()}


def table(results: Path) -> list[list[str]]:
    """Bytes up to within 0.5 points of float32's final accuracy; the fewest first."""
    runs = load(results)
    target = runs[FLOAT32].target(ROUNDS)
    spent = {name: run.spent(target, "up") for name, run in runs.items()}
    ours = spent[OURS]
    grid = [["method", "kB up", "times ours", "rounds", "final accuracy (%)"]]
    for name in sorted(runs, key=lambda name: spent[name] or float("inf")):
        cost, rounds, final = spent[name], runs[name].spent(target, "round"), runs[name].final(ROUNDS)
        cells = [f"{cost / 1000:,.0f}" if cost else "never", number(cost / ours) if cost and ours else "—"]
        grid.append([name, *cells, f"{rounds:.0f}" if rounds else "—", f"{100 * final:.2f}" if final else "—"])
    return grid


def _read(name: str, path: Path) -> Record:
    lines = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
    tested = [line for line in lines if line.get("test_accuracy") is not None]
    keys = ("round", "test_accuracy", "wire_bytes_up", "wire_bytes_down")
    rounds, values, up, down = ([line[key] for line in tested] for key in keys)
    return Record("cnn-iid", name, "", 0, True, rounds, values, up, down, "", 0.0, "")
