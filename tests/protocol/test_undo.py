"""A round that noise has ruined is taken back: all that was before it, finer levels, every byte still counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.downlink import Late
from adaquantfl.protocol.messages import MOST_TAKEN_BACK, Reply
from adaquantfl.protocol.state import MOST_ROLLED_BACK, Trajectory
from adaquantfl.protocol.step import ServerStep
from adaquantfl.rules import DAdaQuant, FedDQ
from support.rounds import Change, Federation, federation, flat
from support.scripted import Scripted

UNDO: dict[str, Any] = {"rule": aq.Fixed(s=8.0), "undo": 5.0}
EVERY_RULE = [aq.AdaQuant(), aq.Fixed(bits=2), aq.FullPrecision(), DAdaQuant(patience=2), aq.Auto(), FedDQ(0.01)]


def ruined(losses: dict[int, float], rounds: tuple[int, ...] = (2,)) -> Change:
    """What these clients say of their loss in some rounds; NaN: their training diverged."""

    def change(round: int, client: int, reply: Reply) -> Reply:
        if round not in rounds or client not in losses:
            return reply
        nothing = Reply(reply.round, math.nan, reply.examples, order=reply.order)
        return nothing if math.isnan(losses[client]) else replace(reply, loss=losses[client])

    return change


ALL = dict.fromkeys(range(3), 1e6)


def played(run: Federation, rounds: int) -> Federation:
    for _ in range(rounds):
        run.play()
    return run


@dataclass(frozen=True)
class Momentum(ServerStep):
    """A step that keeps a vector from round to round."""

    name = "a-momentum"

    def init(self, dimension: int) -> dict[str, Any]:
        return {"velocity": np.zeros(dimension, dtype=np.float32)}

    def apply(self, update: np.ndarray, state: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        velocity = np.float32(0.9) * state["velocity"] + update
        return velocity, {"velocity": velocity}


def assert_same(one: Trajectory, other: Trajectory) -> None:
    """The same in every bit: the model, and what the step and the downlink keep."""
    assert (one.model.weights.tobytes(), one.round) == (other.model.weights.tobytes(), other.round)
    for mine, theirs in ((one.step, other.step), (one.downlink, other.downlink)):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            np.testing.assert_array_equal(value, theirs[name])


@pytest.mark.parametrize("losses", [ALL, dict.fromkeys(range(3), math.nan), {1: math.nan}], ids=str)
@pytest.mark.parametrize("downlink", ["model", "exact", Late(private=True)], ids=str)
def test_all_that_training_depends_on_comes_back_with_finer_levels(losses: dict[int, float], downlink: Any) -> None:
    run = played(federation(300, ruined(losses), **UNDO, downlink=downlink, step=Momentum()), 4)
    assert [line.get("undone", False) for line in run.lines] == [False, False, True, False]
    assert_same(run.states[3].trajectory, run.states[1].trajectory)
    assert run.states[4].log.digest != run.states[3].log.digest == run.states[1].log.digest
    assert run.lines[3]["s"] == 2 * run.lines[2]["s"]
    assert run.lines[2]["wire_bytes_up"] > run.lines[1]["wire_bytes_up"]


def test_a_round_that_the_rule_rejects_leaves_the_model_as_it_was_and_its_bytes_count() -> None:
    run = played(federation(300, rule=Scripted((0, 2))), 3)
    assert [line.get("undone", False) for line in run.lines] == [True, False, True]
    for after, before in ((1, 0), (3, 2)):
        assert_same(run.states[after].trajectory, run.states[before].trajectory)
    sent = [line["wire_bytes_up"] for line in run.lines]
    assert 0 < sent[0] < sent[1] < sent[2]


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.name)
def test_every_rule_can_be_undone_and_is_itself_where_nothing_is(rule: aq.Rule) -> None:
    run = played(federation(300, ruined(dict.fromkeys(range(3), math.nan)), rule=rule, undo=5.0), 4)
    assert [line.get("undone", False) for line in run.lines] == [False, False, True, False]
    plain, watched = played(federation(300, rule=rule), 4), played(federation(300, rule=rule, undo=5.0), 4)
    assert watched.server.model.weights.tobytes() == plain.server.model.weights.tobytes()


def test_without_undo_a_training_that_diverges_stops_with_a_sentence() -> None:
    run = federation(change=ruined(dict.fromkeys(range(3), math.nan)), rule=aq.Fixed(bits=2))
    with pytest.raises(aq.EngineError, match=r"Round 3: 0 of 3 clients .*diverged: lower the learning rate"):
        played(run, 3)


def test_one_client_that_diverges_takes_nothing_back_where_a_round_can_do_without_it() -> None:
    run = played(federation(300, ruined({1: math.nan}), **UNDO, min_clients=2), 3)
    assert not any("undone" in line for line in run.lines)
    assert list(run.lines[2]["missing"]) == [1]


def test_too_few_replies_take_nothing_back_whatever_their_losses() -> None:
    def change(round: int, client: int, reply: Reply) -> Reply | str:
        return "cut off." if round == 2 and client > 0 else ruined(ALL)(round, client, reply)

    run = played(federation(300, change, **UNDO), 2)
    before = run.server.model.weights.tobytes()
    with pytest.raises(aq.EngineError, match="Round 3: 1 of 3 clients answered"):
        run.play()
    assert run.server.model.weights.tobytes() == before
    assert set(run.server.missing) == {1, 2}  # the round is open: they may still answer


def test_levels_double_and_the_factor_wears_off() -> None:
    levels = [line["s"] for line in played(federation(9, ruined(ALL), rule=aq.Fixed(bits=2), undo=5.0), 34).lines]
    assert levels[:4] == [3, 3, 3, 6.0]
    assert 3 < levels[5] < levels[4] < 6
    assert levels[-1] == pytest.approx(3, rel=0.06)


def test_a_loss_that_stays_high_is_accepted_in_the_end() -> None:
    run = federation(9, ruined(ALL, rounds=tuple(range(1, 99))), rule=aq.Fixed(bits=2), undo=5.0)
    played(run, MOST_ROLLED_BACK + 2)
    assert [line.get("undone", False) for line in run.lines] == [False, *[True] * MOST_ROLLED_BACK, False]


# ------------------------------------------------------------------------------------------ error feedback


@pytest.mark.parametrize(
    ("undone", "rejected", "before"), [((), (), [None, 0, 1]), ((2,), (), [None, 0, 1, 0]), ((), (1,), [None, 0, 0, 2])]
)
def test_what_a_client_left_out_of_a_round_taken_back_is_left_out_no_longer(
    undone: tuple[int, ...], rejected: tuple[int, ...], before: list[int | None]
) -> None:
    """before: the round after which the client kept what it adds in each round."""
    run = federation(300, ruined(ALL, undone), rule=Scripted(rejected), quantizer="nearest", undo=5.0)
    kept: dict[int | None, np.ndarray | float] = {None: 0.0}
    for round, start in enumerate(before):
        weights = run.clients[1].open(run.server.open()[1])
        run.server.return_to(run.states[-1])
        run.play()
        update = flat(run._trained(1, weights, round, run.clients[1].order.eta)) - flat(weights)
        kept[round] = run.clients[1].state()["remainder"]["value"]
        assert np.any(kept[round])
        sent = aq.decode(run.frame(1)).dequantize()
        np.testing.assert_allclose(sent + kept[round], update + kept[start], atol=1e-6)


def test_who_was_away_or_silent_is_told_later_of_rounds_taken_back() -> None:
    run = federation(300, ruined(ALL), rule=aq.Fixed(bits=3), quantizer="nearest", undo=5.0, min_clients=2)
    for asked in (None, None, [0, 2], [0, 2]):  # the third one takes back the second
        run.play(asked)
    run.change = lambda round, client, reply: "cut off." if client == 1 else reply
    run.play()
    run.change = None
    for told in ((1,), ()):  # its answer did not arrive, so that it is told again
        run.play()
        assert run.clients[1].order.taken_back == told
        assert run.clients[0].order.taken_back == ()
    assert run.server.current.owed == {}


def test_a_rule_that_rejects_for_ever_does_not_overfill_an_order() -> None:
    server = aq.Server(np.zeros(9, np.float32), rule=Scripted(tuple(range(400))), quantizer="nearest", min_clients=1)
    end = aq.Client(0)
    for _ in range(300):
        server.receive(0, end.reply(end.open(server.open([0, 1])[0]) + 1, loss=1.0))
        server.close()
    assert {client: len(owed) for client, owed in server.current.owed.items()} == {0: 1, 1: MOST_TAKEN_BACK}
