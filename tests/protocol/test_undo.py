"""A round that noise has ruined is taken back: the model before it, finer levels, every byte still counted."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.engines.flower import records
from adaquantfl.engines.gloo import messages as gloo
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol import server
from adaquantfl.protocol.messages import Absence, Model, Plan, Reply
from adaquantfl.report.progress import numbers
from adaquantfl.runs import loop as runner
from adaquantfl.runs.config import Config


class Ruined(LocalEngine):
    """The local engine, with what some clients say of their loss in some rounds replaced. None: they diverged."""

    ruins: dict[int, dict[int, float | None]] = {2: {0: 90.0, 1: 90.0, 2: 90.0}}  # noqa: RUF012

    def train(self, model: Model, plan: Plan, clients: Sequence[int] | None = None) -> Iterator[Reply | Absence]:
        says = self.ruins.get(plan.round, {})
        for reply in super().train(model, plan, clients):
            assert isinstance(reply, Reply)
            if reply.client not in says:
                yield reply
            elif (loss := says[reply.client]) is None:
                yield Reply(reply.client, b"", b"", math.nan, 0.0, 0.0)
            else:
                yield replace(reply, round_loss=loss)


class Diverged(Ruined):
    ruins = {2: {0: None, 1: None, 2: None}}  # noqa: RUF012


class OneDiverged(Ruined):
    ruins = {2: {1: None}}  # noqa: RUF012


@pytest.fixture
def config(small: Config) -> Config:
    return replace(small, method="cost-aware", rule_s0=1.0, workers=1, rounds=6, survey_every=2)


def played(config: Config, engine: LocalEngine, rounds: int) -> tuple[list[server.RunState], list[dict[str, Any]]]:
    states, lines = [server.start(config, engine)], []
    for _ in range(rounds):
        state, line = server.play_round(states[-1], config, engine)
        state, line = server.evaluate(state, line, config, engine)
        states.append(state)
        lines.append(line)
    return states, lines


@pytest.mark.parametrize("kind", [Ruined, Diverged, OneDiverged])
def test_the_model_before_the_ruined_one_comes_back_with_finer_levels(config: Config, kind: type[Ruined]) -> None:
    states, lines = played(config, kind(config), 4)
    assert [line.get("undone", False) for line in lines] == [False, False, True, False]
    np.testing.assert_array_equal(states[3].model.weights, states[1].model.weights)
    assert not np.array_equal(states[4].model.weights, states[3].model.weights)
    assert states[3].schedule.s == 2 * lines[2]["s"]
    assert lines[2]["wire_bytes_up"] > lines[1]["wire_bytes_up"]


class Sharp(LocalEngine):
    """The noise of the first two rounds doubles the loss, say the clients."""

    def train(self, model: Model, plan: Plan, clients: Sequence[int] | None = None) -> Iterator[Reply | Absence]:
        for reply in super().train(model, plan, clients):
            assert isinstance(reply, Reply)
            felt = struct.pack("<2f", 1.0, 1.0 if plan.round < 2 else 0.0)
            yield replace(reply, survey=felt + reply.survey[len(felt) :]) if plan.survey else reply


@pytest.mark.parametrize("loss", ["full", "round"])
@pytest.mark.parametrize("downlink", ["model", "exact", "lossy"])
def test_a_start_whose_noise_does_harm_leaves_the_model_as_it_was(config: Config, loss: str, downlink: str) -> None:
    config = replace(config, rule_s0=0.25, loss=loss, downlink=downlink)
    states, lines = played(config, Sharp(config), 4)
    assert [line.get("undone", False) for line in lines] == [True, True, False, False]
    for state in states[:3]:
        np.testing.assert_array_equal(state.model.weights, states[0].model.weights)
    assert not np.array_equal(states[3].model.weights, states[0].model.weights)
    assert [line["s"] for line in lines[:3]] == pytest.approx([0.25, 0.5, 1.0])
    assert 0 < lines[0]["wire_bytes_up"] < lines[1]["wire_bytes_up"] < lines[2]["wire_bytes_up"]
    if states[2].downlink is not None:
        assert states[2].downlink.digest == states[0].downlink.digest  # type: ignore[union-attr]
    assert [line["harm"] for line in lines[:3]] == [1.0, 1.0, 0.0]
    assert [numbers(*seen).endswith("taken back") for seen in zip(states[1:], lines, strict=True)] == [
        True,
        True,
        False,
        False,
    ]
    assert " s 0.5 " in numbers(states[2], lines[1])


def test_without_such_a_rule_a_training_that_diverges_stops_with_a_sentence(config: Config) -> None:
    fixed = replace(config, method="2bit")
    with pytest.raises(aq.EngineError, match=r"Round 3: 0 of 3 clients .*diverged: lower the learning rate"):
        played(fixed, Diverged(fixed), 3)


def test_one_client_that_diverges_takes_nothing_back_where_a_round_can_do_without_it(config: Config) -> None:
    lenient = replace(config, min_clients=2)
    _, lines = played(lenient, OneDiverged(lenient), 3)
    assert not any("undone" in line for line in lines)
    assert list(lines[2]["missing"]) == [1]


def test_a_client_whose_training_diverges_says_so_instead_of_an_update(config: Config) -> None:
    engine = LocalEngine(config)
    for reply in engine.train(engine.federation.model, Plan(0, 2, 1e30)):
        assert isinstance(reply, Reply)
        assert (reply.frame, math.isnan(reply.round_loss)) == (b"", True)


@pytest.mark.parametrize("downlink", ["exact", "lossy"])
def test_the_way_down_leads_back_too(config: Config, downlink: str) -> None:
    states, _ = played(replace(config, downlink=downlink), Ruined(replace(config, downlink=downlink)), 4)
    np.testing.assert_array_equal(states[3].model.weights, states[1].model.weights)
    way = states[3].downlink
    assert way is not None
    assert way.digest == states[1].downlink.digest  # type: ignore[union-attr]


def test_a_run_with_a_round_taken_back_resumes_to_the_same_model(config: Config, tmp_path: Path) -> None:
    config = replace(config, checkpoint_every=1)
    whole = runner.run(config, tmp_path / "whole", connect=Ruined)

    class Enough(Exception):
        pass

    def stop(_: object, state: server.RunState, line: object) -> None:
        if state.round == 2:
            raise Enough

    with pytest.raises(Enough):
        runner.run(config, tmp_path / "cut", stop, Ruined)
    assert runner.resume(tmp_path / "cut", connect=Ruined)["model_sha256"] == whole["model_sha256"]


def test_a_training_that_diverged_is_told_on_every_engine() -> None:
    call = ("train", (1, Plan(3, 0.7, 0.1, survey=True)))
    diverged = Reply(1, b"", b"", math.nan, 1.0, 0.0)
    header, body = gloo.encode_answer(9, call, diverged)
    (by_flower,) = records.read_answers(records.write_answers([diverged]), [call])
    for reply in (gloo.decode_answer(header, 9, call, 1000).answer(1, body), by_flower):
        assert isinstance(reply, Reply)
        assert (reply.client, reply.frame, math.isnan(reply.round_loss)) == (1, b"", True)
