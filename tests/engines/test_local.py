"""The local engine: the result does not depend on the workers, and a lost worker is named."""

from __future__ import annotations

import os
import signal
import time

import pytest

import adaquantfl as aq
from adaquantfl.config import load_config
from adaquantfl.engines.local import LocalEngine
from adaquantfl.federated.messages import Plan

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


def test_a_killed_worker_is_reported_and_nothing_waits_for_ever() -> None:
    engine = LocalEngine(load_config("demo", {**SMALL, "workers": 2, "tau": 2000}))
    try:
        assert engine._pool is not None
        replies = engine.train(engine.federation.model, Plan(0, 2, 0.1))
        next(replies)
        os.kill(engine._pool._processes[0].pid, signal.SIGKILL)
        with pytest.raises(aq.EngineError, match=r"worker-0 ended in mid-round \(killed by signal 9\)"):
            list(replies)
    finally:
        began = time.monotonic()
        engine.close()
        assert time.monotonic() - began < 15


def test_an_error_in_a_worker_reaches_the_server_as_itself() -> None:
    engine = LocalEngine(load_config("demo", {**SMALL, "workers": 2, "eta": 1e30}))
    try:
        with pytest.raises(aq.QuantizeError, match="NaN or infinite"):
            list(engine.train(engine.federation.model, Plan(0, 2, 1e30)))
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
    processes, name = list(pool._processes), pool._memory.name
    engine.close()
    assert not any(process.is_alive() for process in processes)
    assert not os.path.exists(f"/dev/shm/{name}")
