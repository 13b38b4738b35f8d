"""`norm_action = "refuse"`: what docs/security.md says about the norm of an update holds for every quantizer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.quantizers.base import top
from adaquantfl.quantizers.registry import find, names

D = 4096
KINDS = [(name, norm) for name in names() for norm in find(name).tags]


@pytest.mark.parametrize(("name", "norm"), KINDS)
@pytest.mark.parametrize("s", [1, 2, 7])
def test_the_decoded_norm_is_within_the_documented_bound(name: str, norm: str, s: int) -> None:
    """At most 1 + sqrt(d) / s times that of the client's own update, for dense and for sparse ones."""
    kind, rng = find(name), np.random.default_rng(s)
    for x in (rng.standard_normal(D), np.eye(1, D)[0], np.ones(D), rng.standard_normal(D) ** 5):
        vector = x.astype(np.float32)
        levels = aq.quantize(vector, min(s, kind.traits.most), 1, quantizer=name, norm=norm or None)
        bound = (1 + math.sqrt(D) / levels.s) * np.linalg.norm(vector)
        assert np.linalg.norm(levels.dequantize()) <= bound


@pytest.mark.parametrize(("name", "norm"), KINDS)
def test_no_accepted_frame_moves_the_model_further_than_the_limit(name: str, norm: str) -> None:
    """Frames whose levels are as large as they can be, with scales that say little of it."""
    accepted = 0
    for scale in (1e-4, 1e-3, 1e-2, 0.1, 1.0):
        server = aq.Server(
            np.zeros(D, np.float32), rule=aq.Fixed(bits=1), quantizer=name, norm=norm, max_update_norm=3.0
        )
        order, client = server.open([0])[0], aq.Client(0)
        given: Any = client.open(order)
        reply = Reply.unpack(client.reply(given + np.float32(1), loss=1.0))
        known = Order.unpack(order).known(server.current.layout.lengths)
        levels = _read(reply.frame, known)
        largest = top(find(name).traits, levels.s, levels.numbers)
        scales: Any = np.full_like(levels.scale, scale)
        hostile = replace(levels, values=np.full_like(levels.values, largest), scale=scales)
        try:
            server.receive(0, replace(reply, frame=aq.encode(hostile)).pack())
        except aq.Refused:
            continue
        accepted += 1
        moved: Any = server.close().weights
        assert np.linalg.norm(moved.astype(np.float64)) <= 3.0 * (1 + 1e-6)
    assert accepted


def _read(frame: bytes, known: Any) -> aq.Levels:
    from adaquantfl.codecs.coding import levels_of
    from adaquantfl.codecs.frame import read_frame

    return levels_of(read_frame(frame, D, known))
