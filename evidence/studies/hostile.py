"""What hostile clients do to a training, with each defence and without: 2 of 8 clients are hostile.

    python -m evidence.studies.hostile --rounds 40 --out evidence/records/hostile

Each run leaves one JSON file; runs that have one are not repeated. The hostile clients are this study's own: they train
as the others do, and multiply their update before it is quantized. Their data and the losses that they tell are honest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from adaquantfl.bench.tasks import PICTURES
from adaquantfl.engines.local import LocalEngine
from adaquantfl.errors import EngineError
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import Run

RECORDS = Path("evidence") / "records" / "hostile"
CLIENTS, HOSTILE = 8, (0, 1)
MODELS = ("mlp", "cnn")
# The coarsest start; and levels that are fine enough to leave few elements at 0.
LEVELS: dict[str, dict[str, Any]] = {
    "adaquant": {"rule.s0": 1, "rule.rounding": "nearest"},
    "8bit": {"rule": "8bit"},
}
ATTACKS = {"no attack": 1.0, "sign flip": -1.0, "flip x10": -10.0, "scale x100": 100.0}
DEFENCES: dict[str, dict[str, Any]] = {
    "none": {},
    "refuse 3x": {"max_update_norm": "3x"},
    "clip 1x": {"max_update_norm": "1x", "norm_action": "clip"},
    "median": {"step": "median"},
    "trimmed-mean": {"step": "trimmed-mean", "step.share": 0.25},
    "krum": {"step": "krum", "step.hostile": len(HOSTILE)},
}


@dataclass(frozen=True)
class Case:
    """One run of the study."""

    model: str
    levels: str
    attack: str
    defence: str

    @property
    def file(self) -> Path:
        return Path(self.model, self.levels, self.attack.replace(" ", "-"), f"{self.defence.replace(' ', '-')}.json")

    def config(self, rounds: int, seed: int = 0) -> Config:
        """Bundled pictures with 8 clients; a round counts also where clients were refused."""
        shared = {"model": self.model, "clients": CLIENTS, "min_clients": 1, "workers": 1, "evaluate_every": 10}
        settings = {**shared, "rounds": rounds, "seed": seed, **LEVELS[self.levels], **DEFENCES[self.defence]}
        return load_config("demo", {**PICTURES, **settings})


def cases(models: Sequence[str] = MODELS, levels: Sequence[str] = tuple(LEVELS)) -> Iterator[Case]:
    """Every run, in the order in which they are carried out."""
    for model, attack, defence, each in product(models, ATTACKS, DEFENCES, levels):
        yield Case(model, each, attack, defence)


def hostile_engine(factor: float) -> Callable[[Config], LocalEngine]:
    """The local engine, where the clients of HOSTILE multiply their updates by this factor."""

    def connect(config: Config) -> LocalEngine:
        engine = LocalEngine(config)
        trainer = engine.player.trainer
        honest = trainer.train

        def train(client: int, weights: Any, round: int, eta: float) -> tuple[dict[str, Any], float]:
            trained, loss = honest(client, weights, round, eta)
            if client in HOSTILE:
                trained = {name: weights[name] + factor * (after - weights[name]) for name, after in trained.items()}
            return trained, loss

        trainer.train = train  # type: ignore[method-assign]  # this engine's own trainer
        return engine

    return connect


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """The record of one run. A training that diverges is a result."""
    config = case.config(rounds)
    engine = hostile_engine(ATTACKS[case.attack])(config)
    lines: list[dict[str, Any]] = []
    stopped = ""
    try:
        run = Run(config, engine)
        while not run.finished:
            run.play_round(lines.append)
    except EngineError as error:
        stopped = str(error)
    finally:
        engine.close()
    evaluated = [line for line in lines if "loss" in line]
    columns = ("missing", "clipped", "left_out")
    refused, clipped, left_out = (sum(c in line.get(name, ()) for line in lines for c in HOSTILE) for name in columns)
    unused = [client for line in lines for client in (*line.get("missing", ()), *line.get("left_out", ()))]
    return {
        **vars(case),
        "settings": {key: value for key, value in config.to_dict().items() if key != "workers"},
        "rounds": len(lines),
        "loss": evaluated[-1]["loss"] if evaluated and not stopped else None,
        "test_accuracy": evaluated[-1]["test_accuracy"] if evaluated and not stopped else None,
        "losses": [[line["round"], line["loss"]] for line in evaluated],
        "s": lines[-1]["s"] if lines else None,
        "hostile_refused": refused,
        "hostile_clipped": clipped,
        "hostile_left_out": left_out,
        "honest_not_used": sum(client not in HOSTILE for client in unused),
        "stopped": stopped,
    }


def load(records: Path = RECORDS) -> dict[Case, dict[str, Any]]:
    """The records that there are."""
    found = {case: records / case.file for case in cases()}
    return {case: json.loads(file.read_text(encoding="utf-8")) for case, file in found.items() if file.is_file()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Hostile clients with each defence and without.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--models", default=",".join(MODELS), help="of mlp and cnn, separated by commas")
    parser.add_argument("--levels", default=",".join(LEVELS), help="of adaquant and 8bit, separated by commas")
    options = parser.parse_args(arguments)
    for case in cases(options.models.split(","), options.levels.split(",")):
        file = options.out / case.file
        if file.is_file():
            continue
        record = measure(case, options.rounds)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        part.replace(file)
        print(f"{case.file}: loss {record['loss']}, {record['stopped'] or 'finished'}", flush=True)


if __name__ == "__main__":
    main()
