"""What a server holds of a round: the replies' own bytes, and little else. benchmarks/load.py measures all of it."""

from __future__ import annotations

import sys
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
