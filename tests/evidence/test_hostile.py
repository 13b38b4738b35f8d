"""The study of hostile clients: its clients do what it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from adaquantfl.runs.config import load_config
from evidence.studies import hostile
from support.rounds import Played
from support.small_runs import TINY


def test_hostile_clients_multiply_their_update_and_the_others_do_not() -> None:
    config = load_config("demo", {**TINY, "clients": 3, "rule": "fp32", "rounds": 1})
    engines = [hostile.hostile_engine(factor)(config) for factor in (1.0, -10.0)]
    before = engines[0].player.trainer.weights()
    for client, factor in ((0, -10.0), (1, -10.0), (2, 1.0)):
        honest, other = (engine.player.trainer.train(client, before, 0, 0.1)[0] for engine in engines)
        for name, start in before.items():
            np.testing.assert_allclose(other[name] - start, factor * (honest[name] - start), atol=1e-5)


def test_every_case_is_a_configuration_and_has_a_file_of_its_own() -> None:
    found = list(hostile.cases())
    assert len({case.file for case in found}) == len(found) == 2 * 2 * 4 * 6
    for case in found:
        assert case.config(rounds=40).clients == 8


def test_a_record_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "ATTACKS", {"scale x100": 100.0})
    monkeypatch.setattr(hostile, "DEFENCES", {"krum": hostile.DEFENCES["krum"]})
    arguments = ["--rounds", "1", "--out", str(tmp_path), "--models", "mlp", "--levels", "8bit"]
    hostile.main(arguments)
    (file,) = tmp_path.rglob("*.json")
    record = json.loads(file.read_text())
    assert (record["hostile_left_out"], record["honest_not_used"], record["rounds"]) == (2, 0, 1)
    monkeypatch.setattr(hostile, "measure", lambda *_: pytest.fail("it has a record already"))
    hostile.main(arguments)


@pytest.mark.slow  # a pool of workers
def test_steps_and_clips_are_the_same_with_workers_and_columns_say_who(tmp_path: Path) -> None:
    settings = {**TINY, "clients": 5, "rounds": 2, "downlink": "exact", "step": "krum", "max_update_norm": "1x"}
    runs = [
        Played(load_config("demo", {**settings, "norm_action": "clip", "workers": workers}), 2) for workers in (1, 2)
    ]
    lines = [[{key: line.get(key) for key in ("clipped", "left_out")} for line in run.lines] for run in runs]
    assert lines[0] == lines[1]
    assert all(len(line["left_out"]) == 1 and line["clipped"] for line in lines[0])
    models = [run.run.server.model.weights.tobytes() for run in runs]
    assert models[0] == models[1]
