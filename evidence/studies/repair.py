"""How fast training repairs noise, by the noise's age: <u, e> / |e|^2 for an update u and the uplink's noise e before.

    python -m evidence.studies.repair        about ten minutes on one core; evidence/records/repair.json

The rule `auto` takes the repair as falling with the square root of the age. The noise is that of constant levels, large
enough to be told from chance; tasks and seed are none that is judged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol import client, uplink
from adaquantfl.quantizers.vectors import dot, energy
from adaquantfl.runs.config import load_config
from adaquantfl.runs.loop import Run
from evidence.studies.floor.tasks import TASKS as JUDGED
from evidence.studies.sensitivity import TASKS

RECORD = Path("evidence") / "records" / "repair.json"
SEED, ROUNDS, CNN_ROUNDS = 100, 60, 40
AGES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32))
_MLP = TASKS["MLP, Dirichlet 1.0, 8 clients"]
PROBLEMS: dict[str, tuple[str, dict[str, Any], float]] = {  # a task, its settings, and the constant levels
    "MLP, Dirichlet 1.0": (*_MLP, 1.0),
    "MLP, sorted": (*TASKS["MLP, sorted, 6 clients"], 1.0),
    "logistic regression, i.i.d.": (*TASKS["logistic regression, i.i.d., 6 clients"], 1.0),
    "CNN, Dirichlet 1.0": (
        "demo",
        {**_MLP[1], "model": "cnn", "eta": 0.1, "tau": 10, "batch_size": 16, "rounds": CNN_ROUNDS},
        1.0,
    ),
    "language model": (JUDGED["language"].source, {**JUDGED["language"].settings, "workers": 1}, 8.0),
}


def repairs(source: str, settings: dict[str, Any], s: float) -> dict[str, list[float]]:
    """Return the mean repair at each age, its standard error, and the noise's energy as a multiple of the step's."""
    noisy = {"rule": "fixed", "rule.s": s, "quantizer": "centroid", "scope": "balanced", "downlink": "exact"}
    config = load_config(source, {"rounds": ROUNDS, **settings, **noisy, "evaluate_every": ROUNDS, "seed": SEED})
    updates, errors = [], []

    def send(update: Any, order: Any, layout: Any, keep: bool, key: int) -> Any:
        frame, levels = uplink.send(update, order, layout, True, key)
        assert levels is not None
        updates.append(update.copy())
        errors.append(levels.dequantize() - update)
        return frame, levels

    noise: list[Any] = []  # of each round so far
    found: dict[tuple[int, int], list[float]] = {ages: [] for ages in AGES}
    shares = []
    engine = LocalEngine(config)
    with patch.object(client, "send", send):
        run = Run(config, engine)
        while not run.finished:
            run.play_round(lambda _: None)
            step = np.mean(updates, axis=0)
            for ages in AGES:
                for age in range(ages[0], min(ages[1], len(noise)) + 1):
                    found[ages].append(-dot(step, noise[-age]) / energy(noise[-age]))
            noise = [*noise, np.mean(errors, axis=0)][-AGES[-1][1] :]
            shares.append(energy(noise[-1]) / energy(step))
            updates.clear()
            errors.clear()
    engine.close()
    means = [float(np.mean(each)) for each in found.values()]
    return {
        "repair": means,
        "deviation": [float(np.std(each) / np.sqrt(len(each))) for each in found.values()],
        "noise": [float(np.median(shares))],
    }


def main() -> None:
    """Measure what is missing."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name, problem in PROBLEMS.items():
        if name not in record:
            record[name] = repairs(*problem)
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
        print(name, record[name])


if __name__ == "__main__":
    main()
