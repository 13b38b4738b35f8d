"""The local engine: the result does not depend on the workers, and a lost worker is named."""

from __future__ import annotations

import os
import signal
import time

import pytest

from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol.messages import Absence, Plan
from adaquantfl.runs.config import load_config

SMALL = {"model": "mlp", "clients": 5, "tau": 2, "loss_samples": 32}


def test_replies_are_the_same_for_any_number_of_workers_and_in_client_order() -> None:
    outcomes = []
    for workers in (1, 2, 3):
        engine = LocalEngine(load_config("demo", {**SMALL, "workers": workers}))
        try:
            model = engine.federation.model
            replies = list(engine.train(model, Plan(3, 2, 0.1)))
            assert [reply.client for reply in replies] == list(range(5))
            outcomes.append(([(r.frame, r.round_loss) for r in replies], engine.evaluate(model)))
        finally:
            engine.close()
            engine.close()
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.slow
def test_a_killed_worker_costs_one_client_and_is_replaced() -> None:
    engine = LocalEngine(load_config("demo", {**SMALL, "workers": 2, "tau": 2000}))
    try:
        assert engine._pool is not None
        answers = engine.train(engine.federation.model, Plan(0, 2, 0.1))
        first = next(answers)
        victim = next(iter(engine._pool._workers.values()))
        os.kill(victim.pid, signal.SIGKILL)
        rest = list(answers)
        lost = [answer for answer in rest if isinstance(answer, Absence)]
        assert len(lost) == 1
        assert "ended in mid-round (killed by signal 9)" in lost[0].reason
        assert [first.client, *(answer.client for answer in rest)] == list(range(5))
    finally:
        began = time.monotonic()
        engine.close()
        assert time.monotonic() - began < 15


def test_a_client_slower_than_the_timeout_is_given_up() -> None:
    engine = LocalEngine(load_config("demo", {**SMALL, "workers": 2, "tau": 100_000, "clients": 2, "round_timeout": 4}))
    try:
        answers = list(engine.train(engine.federation.model, Plan(0, 2, 0.1)))
        assert [answer.reason for answer in answers] == ["no answer within round_timeout = 4 s."] * 2
    finally:
        engine.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_fails_is_absent_with_its_reason(workers: int) -> None:
    engine = LocalEngine(load_config("demo", {**SMALL, "workers": workers}))
    try:
        answers = list(engine.train(engine.federation.model, Plan(0, None, 0.1, survey=True)))
        assert all(isinstance(answer, Absence) for answer in answers)
        assert "raised AssertionError" in answers[0].reason
    finally:
        engine.close()


def test_a_round_that_is_left_half_way_does_not_disturb_the_next() -> None:
    engine = LocalEngine(load_config("demo", {**SMALL, "workers": 2}))
    try:
        model = engine.federation.model
        expected = [reply.frame for reply in engine.train(model, Plan(1, 2, 0.1))]
        half = engine.train(model, Plan(0, 2, 0.1))
        next(half)
        half.close()
        assert [reply.frame for reply in engine.train(model, Plan(1, 2, 0.1))] == expected
    finally:
        engine.close()


def test_closing_leaves_no_process_and_no_shared_memory() -> None:
    engine = LocalEngine(load_config("demo", {**SMALL, "workers": 2}))
    assert engine._pool is not None
    pool = engine._pool
    processes, name = list(pool._workers.values()), pool._memory.name
    engine.close()
    assert not any(process.is_alive() for process in processes)
    assert not os.path.exists(f"/dev/shm/{name}")
