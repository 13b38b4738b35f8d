"""The local engine: the result does not depend on the workers, and a lost worker is named."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adaquantfl.engines.calls import Failure
from adaquantfl.engines.local import LocalEngine
from adaquantfl.engines.pool import Pool
from adaquantfl.runs.config import load_config
from support.engine_rounds import ask, replies, server_of

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


def pool_of(engine: LocalEngine) -> Pool:
    assert engine._pool is not None
    return engine._pool


def test_replies_are_the_same_for_any_number_of_workers(start: Callable[..., LocalEngine]) -> None:
    outcomes = []
    for workers in (1, 2, 3):
        engine = start(workers=workers)
        server = server_of(engine)
        found = replies(engine, server, round=3)
        assert all(isinstance(reply, bytes) for reply in found.values())
        outcomes.append((found, engine.evaluate(server)))
    assert outcomes[0] == outcomes[1] == outcomes[2]


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
def test_a_client_that_fails_is_absent_with_its_reason(start: Callable[..., LocalEngine], workers: int) -> None:
    engine = start(workers=workers)
    server = server_of(engine)
    reasons = replies(engine, server, candidates=(0.0,))
    assert all("that is not above 0" in str(reason) for reason in reasons.values())
    assert all(isinstance(reply, bytes) for reply in replies(engine, server).values())


def test_a_round_that_is_left_half_way_does_not_disturb_the_next(start: Callable[..., LocalEngine]) -> None:
    engine = start(workers=2)
    server = server_of(engine)
    expected = replies(engine, server, round=1)
    half = ask(engine, server)
    next(half)
    half.close()
    assert replies(engine, server, round=1) == expected


def test_closing_leaves_no_process_and_no_shared_memory(start: Callable[..., LocalEngine]) -> None:
    engine = start(workers=2)
    replies(engine, server_of(engine))
    processes, memory = list(pool_of(engine)._workers.values()), pool_of(engine)._memory
    assert memory is not None
    assert os.path.exists(f"/dev/shm/{memory.name}")
    engine.close()
    assert not any(process.is_alive() for process in processes)
    assert not os.path.exists(f"/dev/shm/{memory.name}")
