"""The CNN and the language model, seed 0, from records of other studies: float32's rounds for all, none more."""

from __future__ import annotations

import json
from pathlib import Path

from studies.floor.records import Record
from studies.floor.tables import number

FLOAT32, OURS = "float32", "cost-aware, centroid"
CNN_ROUNDS = 60
CNN = {
    FLOAT32: "ablation/cnn-8-clients/float32",
    OURS: "ablation/cnn-8-clients/cost-aware-centroid",
    "s = 0.1, centroid": "ablation/cnn-8-clients/s-0.1-centroid-balanced",
    "s = 0.25, centroid": "ablation/cnn-8-clients/s-0.25-centroid-balanced",
    "AdaQuantFL, s0 = 2": "rivals/iid/adaquant",
    "DAdaQuant, time only, s0 = 1": "rivals/iid/dadaquant-time",
    "QSGD, 2 bits, entropy-coded": "rivals/iid/2bit",
}
LANGUAGE = {
    FLOAT32: "ablation/language-model-4-clients/float32",
    "auto, late": "safe-default/language/auto",
    OURS: "ablation/language-model-4-clients/cost-aware-centroid",
    "s = 4, centroid": "ablation/language-model-4-clients/s-4-centroid-balanced",
    "AdaQuantFL, s0 = 2": "ablation/language-model-4-clients/adaquantfl-s0-2",
}


def cnn(results: Path) -> list[list[str]]:
    """Bytes up to within 0.5 points of float32's final accuracy; the fewest first."""
    runs = {name: _read(name, results / path, "test_accuracy") for name, path in CNN.items()}
    target = runs[FLOAT32].target(CNN_ROUNDS)
    spent = {name: run.spent(target, "up") for name, run in runs.items()}
    ours = spent[OURS]
    grid = [["method", "kB up", "times ours", "rounds", "final accuracy (%)"]]
    for name in sorted(runs, key=lambda name: spent[name] or float("inf")):
        cost, rounds, final = spent[name], runs[name].spent(target, "round"), runs[name].final(CNN_ROUNDS)
        cells = [f"{cost / 1000:,.0f}" if cost else "never", number(cost / ours) if cost and ours else "—"]
        grid.append([name, *cells, f"{rounds:.0f}" if rounds else "—", f"{100 * final:.2f}" if final else "—"])
    return grid


def language(results: Path) -> list[list[str]]:
    """Where each method ends after float32's rounds; the lowest loss first."""
    runs = {name: _read(name, results / path, "test_loss") for name, path in LANGUAGE.items()}
    float32 = runs[FLOAT32].value[-1]
    grid = [["method", "kB up", "rounds", "test loss", "above float32"]]
    for name, run in sorted(runs.items(), key=lambda one: one[1].value[-1]):
        above = f"{100 * (run.value[-1] / float32 - 1):.1f} %"
        grid.append([name, f"{run.up[-1] / 1000:,.0f}", str(run.round[-1]), f"{run.value[-1]:.3f}", above])
    return grid


def _read(name: str, path: Path, measure: str) -> Record:
    lines = [json.loads(line) for line in (path / "seed-0" / "history.jsonl").read_text().splitlines()]
    tested = [line for line in lines if line.get(measure) is not None]
    rounds, values, up, down = (
        [line[key] for line in tested] for key in ("round", measure, "wire_bytes_up", "wire_bytes_down")
    )
    return Record("", name, "", 0, measure == "test_accuracy", rounds, values, up, down, "", 0.0, "")
