"""What a server holds of a round: the replies' own bytes, and little else. benchmarks/load.py measures all of it."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq


@pytest.mark.parametrize("rule", ["auto", "adaquant", "8bit"])
def test_an_accepted_reply_is_kept_as_the_bytes_that_came_and_nothing_of_its_size(rule: str) -> None:
    server = aq.Server({"w": np.zeros(5_000, np.float32), "a.running_var": np.ones(500, np.float32)}, rule=rule)
    replies = {}
    for number, order in server.open(range(3)).items():
        client = aq.Client(number)
        given: Any = client.open(order)
        replies[number] = client.reply({name: array + 1 for name, array in given.items()}, loss=1.0)
        server.receive(number, replies[number])
    assert server._round is not None
    for number, one in server._round.heard.items():
        assert one.data is replies[number]
        rest = [getattr(one, name) for name in one.__slots__ if name != "data"]
        assert sum(map(sys.getsizeof, rest)) < 1_000
        assert not any(isinstance(value, bytes | memoryview | np.ndarray) for value in rest)


def models_at_the_peak(call: Callable[[], Any], dimension: int) -> tuple[Any, float]:
    """What a call returns, and the memory that it takes above what was there before it."""
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    returned = call()
    return returned, (tracemalloc.get_traced_memory()[1] - before) / (4 * dimension)


def test_neither_end_makes_more_than_a_few_copies_of_the_model() -> None:
    size = 1_000_000
    trained = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    server, client = aq.Server(np.zeros(size, np.float32), rule="auto"), aq.Client(0)
    took: dict[str, list[float]] = {"open": [], "reply": [], "receive": [], "close": []}
    tracemalloc.start()
    try:
        for _ in range(3):
            order = server.open([0])[0]
            _, opened = models_at_the_peak(lambda order=order: client.open(order, copy=False), size)
            reply, replied = models_at_the_peak(lambda: client.reply(trained, loss=1.0), size)
            _, received = models_at_the_peak(lambda reply=reply: server.receive(0, reply), size)
            _, closed = models_at_the_peak(server.close, size)
            for name, models in zip(took, (opened, replied, received, closed), strict=True):
                took[name].append(models)
    finally:
        tracemalloc.stop()
    most = {name: max(models) for name, models in took.items()}
    assert most["open"] < 1.8  # the new model, its change's levels, and blocks that are decoded
    assert most["reply"] < 2.3  # the update, its levels, and memory to encode them
    assert most["receive"] < 0.5
    assert most["close"] < 3.3  # the new model, the remainder, levels and frames
