"""The local engine: the result does not depend on the workers, and a lost worker is named."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from adaquantfl.engines.calls import Failure
from adaquantfl.engines.local import LocalEngine
from adaquantfl.engines.pool import Pool
from adaquantfl.errors import EngineError
from adaquantfl.runs.config import load_config
from support.engine_rounds import ask, play_round, replies, server_of

pytestmark = pytest.mark.timeout(1200)  # workers take long to start on a busy machine
SMALL = {"model": "mlp", "clients": 5, "tau": 2, "loss_samples": 32}


@pytest.fixture
def start() -> Iterator[Callable[..., LocalEngine]]:
    """Engines that are closed at the end, whatever becomes of the test."""
    started: list[LocalEngine] = []

    def make(**changes: Any) -> LocalEngine:
        started.append(LocalEngine(load_config("demo", {**SMALL, **changes})))
        return started[-1]

    yield make
    for engine in started:
        engine.close()
        engine.close()


@pytest.fixture(scope="module")
def pooled() -> Iterator[LocalEngine]:
    """An engine with two workers for several tests: each worker imports PyTorch."""
    engine = LocalEngine(load_config("demo", {**SMALL, "workers": 2}))
    yield engine
    engine.close()


def pool_of(engine: LocalEngine) -> Pool:
    assert engine._pool is not None
    return engine._pool


def outcome(engine: LocalEngine) -> tuple[Any, Any]:
    server = server_of(engine)
    found = replies(engine, server, round=3)
    assert all(isinstance(reply, bytes) for reply in found.values())
    return found, engine.evaluate(server)


def test_replies_are_the_same_with_and_without_workers(start: Callable[..., LocalEngine], pooled: LocalEngine) -> None:
    assert outcome(start(workers=1)) == outcome(pooled)


def test_an_evaluation_that_fails_on_the_server_too_ends_with_the_reason(
    start: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(workers=1)

    def fail(*_: object) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(engine.player.trainer, "correct", fail)
    with pytest.raises(EngineError, match=r"server could not evaluate the model: it raised MemoryError: none left"):
        engine.evaluate(server_of(engine))


@pytest.mark.slow
def test_a_killed_worker_costs_one_client_and_is_replaced(start: Callable[..., LocalEngine]) -> None:
    engine = start(workers=2, tau=100)
    answers = ask(engine, server_of(engine))
    first, _ = next(answers)
    victim = next(iter(pool_of(engine)._workers.values()))
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    rest = dict(answers)
    lost = [answer.reason for answer in rest.values() if isinstance(answer, Failure)]
    assert len(lost) == 1
    assert "ended in mid-round (killed by signal 9)" in lost[0]
    assert sorted([first, *rest]) == list(range(5))
    workers = list(pool_of(engine)._workers.values())
    assert len(workers) == 2
    assert victim not in workers
    engine.close()
    assert not any(worker.is_alive() for worker in workers)


def test_a_client_slower_than_the_timeout_is_given_up(start: Callable[..., LocalEngine]) -> None:
    engine = start(workers=2, tau=10**7, clients=2, round_timeout=4)
    assert list(replies(engine, server_of(engine)).values()) == ["no answer within round_timeout = 4 s."] * 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_fails_is_absent_with_its_reason(
    start: Callable[..., LocalEngine], pooled: LocalEngine, workers: int
) -> None:
    engine = pooled if workers == 2 else start(workers=workers)
    server = server_of(engine)
    reasons = replies(engine, server, s=0.0)
    assert all("that is not above 0" in str(reason) for reason in reasons.values())
    assert all(isinstance(reply, bytes) for reply in replies(engine, server).values())


@pytest.mark.slow
def test_closing_leaves_no_process_and_no_shared_memory(start: Callable[..., LocalEngine]) -> None:
    engine = start(workers=2)
    replies(engine, server_of(engine))
    processes, memory = list(pool_of(engine)._workers.values()), pool_of(engine)._memory
    assert memory is not None
    assert os.path.exists(f"/dev/shm/{memory.name}")
    engine.close()
    assert not any(process.is_alive() for process in processes)
    assert not os.path.exists(f"/dev/shm/{memory.name}")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (math.nan, "its loss is nan."),
        (math.inf, "its loss is inf."),
        (-1e9, "its loss is -1e+09, but cross-entropy is never below 0."),
    ],
    ids=str,
)
def test_a_loss_that_cannot_be_is_left_out_of_the_mean(
    start: Callable[..., LocalEngine],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    said: float,
    words: str,
) -> None:
    engine = start(workers=1, rule="2bit")  # a rule that takes losses below 0
    server = server_of(engine)
    honest = engine.player.trainer.loss
    p = server.stages.cohort.p
    others = [client for client in range(5) if client != 1]
    expected = sum(p[i] * honest(i, server.weights) for i in others) / sum(p[i] for i in others)
    monkeypatch.setattr(engine.player.trainer, "loss", lambda client, w: said if client == 1 else honest(client, w))
    found = engine.evaluate(server, test=False)
    assert found.loss == pytest.approx(expected, rel=1e-12)
    assert found.refused == {"1": words}
    assert f"Evaluation: losses were refused: client 1: {words}" in caplog.text


def test_without_any_usable_loss_the_evaluation_says_so(
    start: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(workers=1)
    server = server_of(engine)
    monkeypatch.setattr(engine.player.trainer, "loss", lambda client, weights: math.nan)
    with pytest.raises(EngineError, match=r"no client sent a loss that can be used: clients 0, 1, 2, 3, 4: its loss"):
        engine.evaluate(server, test=False)


def test_a_server_that_rolls_back_is_told_that_the_model_is_ruined(
    start: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(workers=1, undo=5.0)
    monkeypatch.setattr(engine.player.trainer, "loss", lambda client, weights: math.inf)
    assert math.isnan(engine.evaluate(server_of(engine), test=False).loss)


@pytest.mark.parametrize(("method", "refused"), [("2bit", False), ("adaquant", True)])
def test_the_loss_of_a_task_of_ones_own_may_be_negative_where_the_rule_takes_it(
    start: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch, method: str, refused: bool
) -> None:
    engine = start(workers=1, rule=method)
    server = server_of(engine)
    own = replace(engine.config, task="own.py:task", dataset="", model="", partition="", examples=0)
    monkeypatch.setattr(engine, "config", own)
    monkeypatch.setattr(engine.player.trainer, "loss", lambda client, weights: -1.0 if client == 1 else 1.0)
    found = engine.evaluate(server, test=False)
    assert found.refused == ({"1": "its loss is -1; adaquant takes losses from 0."} if refused else {})
    assert (found.loss == 1.0) == refused


def test_error_feedback_uses_all_workers_and_ends_in_the_same_model(start: Callable[..., LocalEngine]) -> None:
    keys = {"rule": "2bit", "quantizer": "nearest", "downlink": "late", "clients": 3}
    alone, pooled = (start(**keys, workers=workers) for workers in (1, 2))
    servers = [server_of(engine) for engine in (alone, pooled)]
    for _ in range(3):
        assert play_round(alone, servers[0]) == play_round(pooled, servers[1])
    kept = [engine.client_states() for engine in (alone, pooled)]
    assert pool_of(pooled).size == 2
    assert sorted(kept[0]) == sorted(kept[1]) == ["0", "1", "2"]
    for client, state in kept[0].items():
        assert (state["remainder"]["value"] == kept[1][client]["remainder"]["value"]).all()
    pooled.restore_clients(kept[0])  # as when a run is resumed
    assert play_round(alone, servers[0]) == play_round(pooled, servers[1])
