"""Error feedback: what is left out comes with the next update, once, also where rounds are played again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.uplink import Remainder
from support.rounds import federation, reply_of


@pytest.mark.parametrize("quantizer", ["stc", "nearest"])
def test_what_is_left_out_is_kept_and_comes_with_the_next_update(quantizer: str) -> None:
    server = aq.Server(np.zeros(2000, np.float32), rule=aq.Fixed(bits=1), quantizer=quantizer, sparsity=50)
    client, update = aq.Client(0), np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    before: np.ndarray | float = 0.0
    for _ in range(3):
        reply = client.reply(client.open(server.open([0])[0]) + update, loss=1.0)
        sent = aq.decode(reply_of(client, reply).frame).dequantize()
        after = client.state()["remainder"]["value"]
        assert np.abs(after).max() > 0
        np.testing.assert_allclose(sent + after, update + before, atol=1e-5)
        before = after
        server.receive(0, reply)
        server.close()


@pytest.mark.parametrize("back", [1, 2])
def test_rounds_that_a_restored_server_asks_for_again_count_once(back: int) -> None:
    models = []
    for restored in (False, True):
        run, trees = federation(60, quantizer="nearest", downlink="model", rule=aq.Fixed(bits=2)), list[Any]()
        for _ in range(3):
            trees.append(run.server.state())
            run.play()
        if restored:
            run.server = aq.Server.restore(trees[-back])
        for _ in range(2 + back * restored):
            run.play()
        models.append(run.server.weights.tobytes())
    assert models[0] == models[1]


def test_a_reply_that_is_made_twice_leaves_out_the_same() -> None:
    server, end = aq.Server(np.zeros(40, np.float32), rule=aq.Fixed(bits=1), quantizer="nearest"), aq.Client(0)
    trained = end.open(server.open([0])[0]) + np.linspace(-1, 1, 40, dtype=np.float32)
    first = end.reply(trained, loss=1.0)
    assert end.reply(trained, loss=1.0) == first
    end.open(server.order(0, holds=None))
    assert end.reply(trained, loss=1.0) == first


class SometimesLate(aq.Rule):
    """All is sent, except in rounds 2 to 4, in which nine tenths of an update's energy wait for later ones."""

    name = "sometimes-late"

    def init(self) -> dict[str, Any]:
        return {"round": 0}

    def plan(self, state: dict[str, Any], seen: aq.Seen) -> tuple[dict[str, Any], aq.Plan]:
        late = aq.Plan(max_error=0.9, quantizer="fitted", balanced=True, feedback=True)
        return {"round": state["round"] + 1}, late if 1 <= state["round"] < 4 else aq.Plan()


@pytest.mark.parametrize("restored", [False, True])
def test_late_rounds_are_counted_and_what_they_left_out_is_sent_once(restored: bool) -> None:
    rng, server, client = np.random.default_rng(0), aq.Server(np.zeros(500, "f4"), rule=SometimesLate()), aq.Client(0)
    wanted, behind, levels = np.zeros(500), [], []
    for _ in range(7):
        weights, update = client.open(server.open([0])[0]), rng.standard_t(3, 500).astype(np.float32)
        wanted += update
        server.receive(0, client.reply(weights + update, loss=1.0))
        levels.append(server.close().facts["s"])
        behind.append(float(np.square(server.weights - wanted).sum() / np.square(update).sum()))
        if restored:
            client = aq.Client.restore(client.state())
    assert behind[:1] + behind[4:] == pytest.approx([0.0] * 4, abs=1e-9)
    assert min(behind[1:4]) > 0.5
    assert levels[:1] + levels[4:] == [None] * 4
    assert min(levels[1:4]) >= 1


def test_what_can_no_longer_be_taken_back_is_forgotten() -> None:
    left = Remainder().after(3, np.ones(2, dtype=np.float32)).all_sent(4)
    assert left.known
    assert left.all_sent(6).known
    assert not left.all_sent(7).known
