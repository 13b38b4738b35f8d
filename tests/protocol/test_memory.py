"""What a server holds of a round: one copy of the model, the replies' bytes, and little for each client."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.client import ModelCache

CLIENTS, DIMENSION, PER_CLIENT = 400, 50_000, 2_000
MODEL = 4 * DIMENSION


@pytest.mark.parametrize("rule", ["auto", "adaquant", "8bit"])
def test_a_round_holds_the_replies_bytes_and_two_kilobytes_per_client(rule: str) -> None:
    server, models = aq.Server(np.zeros(DIMENSION, np.float32), rule=rule), ModelCache()
    for _ in range(2):  # a second round, whose orders have no model
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        orders = server.open(range(CLIENTS))
        opened = tracemalloc.get_traced_memory()[0] - before
        replies = [_reply(client, orders[client], models) for client in range(CLIENTS)]
        _receive(aq.Server.restore(server.state()), replies)  # the core's own memory grows up to the largest frame
        gc.collect()
        at = tracemalloc.get_traced_memory()[0]
        _receive(server, replies)
        held = tracemalloc.get_traced_memory()[0] - at
        tracemalloc.reset_peak()
        at = tracemalloc.get_traced_memory()[0]
        server.close()
        closing = tracemalloc.get_traced_memory()[1] - at
        tracemalloc.stop()
        assert opened <= MODEL + PER_CLIENT / 2 * CLIENTS
        assert held <= PER_CLIENT / 2 * CLIENTS, "the replies themselves are the caller's"
        # With "auto" about 6 models are what the core may use to write the model's change; most is never touched.
        assert closing <= 12 * MODEL + PER_CLIENT * CLIENTS


def _receive(server: aq.Server, replies: list[bytes]) -> None:
    for client, reply in enumerate(replies):
        server.receive(client, reply)


def _reply(client: int, order: bytes, models: ModelCache) -> bytes:
    end = aq.Client(client, models)
    weights: Any = end.open(order, copy=False)
    step = np.random.default_rng(client).standard_normal(DIMENSION, dtype=np.float32)
    return end.reply(weights + step, loss=1.0)
