"""A round that noise has ruined is taken back: all that was before it, finer levels, every byte still counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.late import Late
from adaquantfl.protocol.messages import Reply
from adaquantfl.protocol.state import Trajectory
from adaquantfl.protocol.step import ServerStep
from support.rounds import Change, Federation, federation, flat
from support.scripted import Scripted

KEEP, REJECT, ROLL_BACK = aq.Verdict
UNDO: dict[str, Any] = {"rule": aq.Fixed(s=8.0), "undo": 5.0}


def ruined(losses: dict[int, float]) -> Change:
    """What these clients say of their loss in the third round; NaN: their training diverged."""

    def change(round: int, client: int, reply: Reply) -> Reply:
        if round != 2 or client not in losses:
            return reply
        said = replace(reply, loss=losses[client])
        nothing = Reply(reply.round, math.nan, reply.examples, order=reply.order)
        return nothing if math.isnan(losses[client]) else said

    return change


def played(run: Federation, rounds: int) -> Federation:
    for _ in range(rounds):
        run.play()
    return run


@pytest.mark.parametrize(
    "losses", [{0: 90.0, 1: 90.0, 2: 90.0}, dict.fromkeys(range(3), math.nan), {1: math.nan}], ids=str
)
@pytest.mark.parametrize("downlink", ["model", "exact", "late"])
def test_the_model_before_the_ruined_one_comes_back_with_finer_levels(losses: dict[int, float], downlink: str) -> None:
    run = played(federation(300, ruined(losses), **UNDO, downlink=downlink), 4)
    assert [line.get("undone", False) for line in run.lines] == [False, False, True, False]
    assert_same(run.states[3].trajectory, run.states[1].trajectory)
    assert run.states[3].log.digest == run.states[1].log.digest
    assert run.states[4].log.digest != run.states[3].log.digest
    assert run.lines[3]["s"] == 2 * run.lines[2]["s"]
    assert run.lines[2]["wire_bytes_up"] > run.lines[1]["wire_bytes_up"]


@pytest.mark.parametrize("downlink", ["model", "exact", "late"])
def test_a_start_that_the_rule_rejects_leaves_the_model_as_it_was(downlink: str) -> None:
    run = played(federation(300, rule=Scripted((REJECT, REJECT)), downlink=downlink), 4)
    assert [line.get("undone", False) for line in run.lines] == [True, True, False, False]
    for state in run.states[:3]:
        assert_same(state.trajectory, run.states[0].trajectory)
        assert state.log.digest == run.states[0].log.digest
    assert run.states[3].log.digest != run.states[0].log.digest
    sent = [line["wire_bytes_up"] for line in run.lines[:3]]
    assert 0 < sent[0] < sent[1] < sent[2]


def test_without_undo_a_training_that_diverges_stops_with_a_sentence() -> None:
    run = federation(change=ruined(dict.fromkeys(range(3), math.nan)), rule=aq.Fixed(bits=2))
    with pytest.raises(aq.EngineError, match=r"Round 3: 0 of 3 clients .*diverged: lower the learning rate"):
        played(run, 3)


def test_one_client_that_diverges_takes_nothing_back_where_a_round_can_do_without_it() -> None:
    run = played(federation(300, ruined({1: math.nan}), **UNDO, min_clients=2), 3)
    assert not any("undone" in line for line in run.lines)
    assert list(run.lines[2]["missing"]) == [1]


@pytest.mark.parametrize("answering", [1, 2])
def test_too_few_replies_take_nothing_back_whatever_their_losses(answering: int) -> None:
    def change(round: int, client: int, reply: Reply) -> Reply | str:
        if round != 2:
            return reply
        return replace(reply, loss=1e9) if client < answering else "cut off."

    run = played(federation(300, change, **UNDO), 2)
    before = run.server.model.weights.tobytes()
    with pytest.raises(aq.EngineError, match=f"Round 3: {answering} of 3 clients answered"):
        run.play()
    assert run.server.model.weights.tobytes() == before
    assert set(run.server.missing) == set(range(answering, 3))  # the round is open: they may still answer
    again = played(federation(300, **UNDO), 2)
    for client, order in again.server.open(eta=0.1).items():
        again._exchange(client, order)
    for client in range(answering, 3):
        run.server.receive(client, replace(Reply.unpack(again.replies[client]), loss=1e9).pack())
    assert run.server.close().facts["undone"]  # enough clients, and their loss is enormous


def test_a_client_whose_training_diverges_says_so_instead_of_an_update() -> None:
    run = federation()
    for client, order in run.server.open().items():
        weights = run.clients[client].open(order)
        for trained, loss in ((weights + np.float32(np.inf), 1.0), (weights, math.nan)):
            reply = Reply.unpack(run.clients[client].reply(trained, loss))
            assert (reply.frame, math.isnan(reply.loss), reply.diverged) == (b"", True, True)


@dataclass(frozen=True)
class Momentum(ServerStep):
    """A step that keeps a vector from round to round."""

    name = "momentum"
    is_sum = False

    def init(self, dimension: int) -> dict[str, Any]:
        return {"velocity": np.zeros(dimension, dtype=np.float32)}

    def apply(self, update: np.ndarray, state: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        velocity = np.float32(0.9) * state["velocity"] + update
        return velocity, {"velocity": velocity}


def assert_same(one: Trajectory, other: Trajectory) -> None:
    """The same in every bit: the model, and what the step and the downlink keep."""
    assert one.model.weights.tobytes() == other.model.weights.tobytes()
    assert one.model.buffers.tobytes() == other.model.buffers.tobytes()
    assert one.round == other.round
    for mine, theirs in ((one.step, other.step), (one.downlink, other.downlink)):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            np.testing.assert_array_equal(value, theirs[name])


SCRIPTS = {  # verdicts -> the rounds of which the state after each round is made
    (KEEP, KEEP, ROLL_BACK, KEEP): ([0], [0, 1], [0], [0, 3]),
    (KEEP, REJECT, KEEP, ROLL_BACK): ([0], [0], [0, 2], [0]),
    (REJECT, ROLL_BACK, KEEP, ROLL_BACK): ([], [], [2], []),
    (KEEP, KEEP, KEEP, ROLL_BACK, ROLL_BACK, KEEP): ([0], [0, 1], [0, 1, 2], [0, 1], [0, 1], [0, 1, 5]),
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: "-".join(verdict.name for verdict in script))
@pytest.mark.parametrize("downlink", ["exact", Late(private=True)])
@pytest.mark.parametrize("step", ["sum", Momentum()])
def test_a_roll_back_restores_all_that_training_depends_on(
    script: tuple[aq.Verdict, ...], downlink: Any, step: Any
) -> None:
    """Compared with runs that never had the rounds taken back: the remainder of a late downlink is theirs too."""
    run = federation(300, rule=Scripted(script), downlink=downlink, step=step)
    for counted in SCRIPTS[script]:
        run.play(loss=1.0)
        clean = federation(300, rule=Scripted((KEEP,) * 6), downlink=downlink, step=step)
        for round in counted:
            state = clean.server.current
            clean.server.return_to(
                replace(state, round=round, ledger=run.states[round].ledger, log=replace(state.log, round=round))
            )
            clean.play(loss=1.0)
        assert_same(run.states[-1].trajectory, clean.server.current.trajectory)
        if isinstance(downlink, Late):
            assert run.states[-1].trajectory.downlink["remainder"].any() == bool(counted)
    assert [line.get("undone", False) for line in run.lines] == [verdict is not KEEP for verdict in script]


@pytest.mark.parametrize(
    ("script", "before"),
    [
        ((KEEP, KEEP, KEEP), [None, 0, 1]),
        ((KEEP, KEEP, ROLL_BACK, KEEP), [None, 0, 1, 0]),
        ((KEEP, REJECT, KEEP), [None, 0, 0]),
        ((KEEP, KEEP, ROLL_BACK, REJECT, KEEP), [None, 0, 1, 0, 0]),
    ],
)
def test_what_a_client_left_out_of_a_round_taken_back_is_left_out_no_longer(
    script: tuple[aq.Verdict, ...], before: list[int | None]
) -> None:
    """before: the round after which the client kept what it adds in each round."""
    run = federation(300, rule=Scripted(script), quantizer="nearest")
    kept: dict[int | None, np.ndarray | float] = {None: 0.0}
    for round, start in enumerate(before):
        weights = run.clients[1].open(run.server.open()[1])
        run.server.return_to(run.states[-1])
        run.play()
        order = run.clients[1].order
        update = flat(run._trained(1, weights, round, order.eta)) - flat(weights)
        sent = aq.decode(run.frame(1)).dequantize()
        kept[round] = run.clients[1].state()["remainder"]["value"]
        assert np.any(kept[round])
        np.testing.assert_allclose(sent + kept[round], update + kept[start], atol=1e-6)


def test_who_was_away_is_told_later_of_a_round_taken_back() -> None:
    run = federation(300, rule=Scripted((KEEP, KEEP, ROLL_BACK, *[KEEP] * 4)), quantizer="nearest")
    for asked in (None, None, [0, 2], [0, 2], None, None):  # the third one takes back the second
        run.play(asked)
        if len(run.lines) == 5:
            assert run.clients[1].order.taken_back == (1,)
    assert all(client.order.taken_back == () for client in run.clients)
    assert run.server.current.taken_back == ()


def test_who_does_not_answer_is_told_again_of_a_round_taken_back() -> None:
    script = Scripted((KEEP, KEEP, ROLL_BACK, *[KEEP] * 4))
    run = federation(300, rule=script, quantizer="nearest", min_clients=2)
    played(run, 3)
    run.change = lambda round, client, reply: "cut off." if client == 1 else reply
    run.clients[1], kept = aq.Client(1), run.clients[1]  # no order arrives
    played(run, 3)
    run.clients[1], run.change = kept, None
    run.play()
    assert {1, 2} <= set(kept.order.taken_back)
