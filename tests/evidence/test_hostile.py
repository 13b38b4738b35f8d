"""The study of hostile clients: its clients do what it says."""

from __future__ import annotations

import numpy as np

from adaquantfl.runs.config import load_config
from evidence.studies import hostile
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
