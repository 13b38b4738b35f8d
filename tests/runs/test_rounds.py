"""Rounds of a configuration: evaluations, samples of clients, simulated time, clients that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adaquantfl as aq
from adaquantfl.engines.base import Engine
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol.messages import Reply
from adaquantfl.report.progress import numbers
from adaquantfl.runs import loop
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.state import finished
from adaquantfl.training import models
from support.rounds import Played, altered
from support.small_runs import interrupt_after

PARTIAL = {"model": "mlp", "clients": 5, "clients_per_round": 2, "loss": "round", "workers": 1, "tau": 2}


def partial(**changes: object) -> Config:
    return load_config("demo", {**PARTIAL, **changes})


def server_of(engine: Engine) -> aq.Server:
    """A server at the engine's start."""
    trainer, config = engine.player.trainer, engine.config
    return aq.Server(trainer.weights(), exact=trainer.buffer_names, stages=config.stages(trainer.examples))


# Evaluations.


def test_the_global_loss_weights_clients_by_their_data(small: Config) -> None:
    engine = LocalEngine(replace(small, loss_samples=0, partition="dirichlet(0.5)"))
    model = models.build("mlp", small.seed)
    x, y = engine.task.train.batch(np.concatenate(engine.task.parts))
    with torch.no_grad():
        everything = torch.nn.functional.cross_entropy(model(x), y).item()
    assert engine.evaluate(server_of(engine)).loss == pytest.approx(everything, rel=1e-5)


def test_the_global_loss_comes_from_a_sample_of_all_data() -> None:
    config = partial()
    engine = LocalEngine(config)
    whole = LocalEngine(replace(config, clients_per_round=0, loss_samples=0))
    found, expected = engine.evaluate(server_of(engine)), whole.evaluate(server_of(whole))
    assert found.loss == pytest.approx(expected.loss, rel=0.02)
    assert found.test == expected.test


def test_an_evaluation_goes_on_with_the_losses_that_came(small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine(replace(small, partition="dirichlet(0.5)"))
    trainer = engine.player.trainer
    start = trainer.weights()
    losses = [trainer.loss(client, start) for client in range(3)]

    def fails(client: int, weights: Any) -> float:
        if client == 1:
            raise RuntimeError("no data today")
        return losses[client]

    monkeypatch.setattr(trainer, "loss", fails)
    strict, lenient = (
        aq.Server(start, stages=replace(engine.config, min_clients=least).stages(trainer.examples)) for least in (0, 2)
    )
    p = lenient.stages.cohort.p
    expected = (p[0] * losses[0] + p[2] * losses[2]) / (p[0] + p[2])
    assert engine.evaluate(lenient).loss == pytest.approx(expected)
    with pytest.raises(aq.EngineError, match=r"client 1: it raised RuntimeError: no data today \(test_rounds.py"):
        engine.evaluate(strict)


def test_the_rule_looks_more_often_but_levels_count_where_every_method_looks(small: Config) -> None:
    config = replace(small, rule={"name": "adaquant", "interval": 1.0}, evaluate_every=3, rounds=5, target_loss=100.0)
    played = Played(config, 5)
    assert [line["round"] for line in played.lines if "loss" in line] == [3, 5]
    assert [line["round"] for line in played.lines if "test_accuracy" in line] == [3, 5]
    assert [line["round"] for line in played.lines if "rule_loss" in line] == [1, 2, 4]
    assert played.states[1].rule_loss == played.lines[0]["rule_loss"]
    assert played.states[-1].targets["100"]["round"] == 3
    assert [finished(state, config) for state in played.states] == [False, False, False, True, True, True]


# A round that does not end.


@pytest.mark.parametrize("where", ["training", "evaluation", "history"])
def test_a_round_that_is_interrupted_leaves_the_run_as_it_was(
    small: Config, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    config = replace(small, evaluate_every=1, quantizer="nearest", rule="2bit")
    played, clean = Played(config, 1), Played(config, 2)
    run, before = played.run, played.run.tree()

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    if where != "history":
        monkeypatch.setattr(run.engine, {"training": "train", "evaluation": "evaluate"}[where], interrupt)
    with pytest.raises(KeyboardInterrupt):
        run.play_round(interrupt)
    after = run.tree()
    assert (run.state, after["clients"].keys()) == (played.states[-1], before["clients"].keys())
    for client, state in before["clients"].items():
        np.testing.assert_array_equal(after["clients"][client]["remainder"]["value"], state["remainder"]["value"])
    assert run.server.current is played.servers[-1]
    resumed = loop.Run(config, LocalEngine(config), after)
    resumed.play_round(lambda line: None)
    assert resumed.server.model.weights.tobytes() == clean.run.server.model.weights.tobytes()


# Clients that fail.


def test_a_client_that_fails_or_is_refused_is_named_in_the_history(small: Config) -> None:
    def change(round: int, client: int, reply: Reply) -> bytes | str | Reply:
        return {0: "killed by signal 9.", 1: reply.pack()[:-1]}.get(client, reply)

    config = replace(small, min_clients=1)
    played = Played(config, 1, altered(LocalEngine, change))
    assert played.lines[0]["missing"][0] == "killed by signal 9."
    assert "checksum" in played.lines[0]["missing"][1]
    assert played.lines[0]["clients"] == 1


def ruined(round: int, client: int, reply: Reply) -> Reply:
    return replace(reply, loss=90.0) if round == 2 else reply


def test_a_run_with_a_round_taken_back_says_so_and_resumes_to_the_same_model(small: Config, tmp_path: Path) -> None:
    config = replace(small, undo=5.0, rounds=4, checkpoint_every=1)
    connect = altered(LocalEngine, ruined)
    shown: list[str] = []
    whole = loop.run(
        config,
        tmp_path / "whole",
        lambda config, state, line: shown.append(numbers(state, line) if line else ""),
        connect,
    )
    assert [text.endswith("taken back") for text in shown] == [False, False, False, True, False]
    with pytest.raises(KeyboardInterrupt):
        loop.run(config, tmp_path / "cut", interrupt_after(2), connect)
    assert loop.resume(tmp_path / "cut", connect=connect)["model_sha256"] == whole["model_sha256"]
