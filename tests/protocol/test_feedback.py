"""Error feedback where orders come late, twice, or from a server that was restored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.feedback import Remainder
from support.rounds import Federation, federation

ROUNDS = 5


def begun() -> Federation:
    """Clients with error feedback, and orders that can be opened at any time."""
    return federation(60, quantizer="nearest", downlink="model", rule=aq.Fixed(bits=2))


def answer(run: Federation, client: int, order: bytes) -> bytes:
    """What an honest client does with an order, whenever it comes."""
    end = run.clients[client]
    weights = end.open(order)
    trained = run._trained(client, weights, end.order.round, end.order.eta)
    return end.reply(trained, run.loss(client, weights), run._examples(client))


def order_of(round: int) -> bytes:
    """The order of client 1 in a round."""
    run = begun()
    for _ in range(round):
        run.play()
    return run.server.open(eta=0.1)[1]


@pytest.fixture(scope="module")
def undisturbed() -> bytes:
    run = begun()
    for _ in range(ROUNDS):
        run.play()
    return bytes(run.server.weights.tobytes())


@pytest.mark.parametrize("late", [(0,), (1,), (2,), (0, 1), (1, 0), (1, 2), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("restored", [False, True])
def test_late_copies_of_earlier_orders_change_nothing(
    late: tuple[int, ...], restored: bool, undisturbed: bytes
) -> None:
    run = begun()
    for _ in range(3):
        run.play()
    kept = run.clients[1].state()["remainder"]["value"]
    for round in late:
        answer(run, 1, order_of(round))
        if restored:
            run.clients[1] = aq.Client.restore(run.clients[1].state())
    assert late[-1] == 2 or np.any(run.clients[1].state()["remainder"]["value"] != kept)
    while len(run.lines) < ROUNDS:
        run.play()
    assert run.server.weights.tobytes() == undisturbed
    assert "later" not in run.clients[1].state()["remainder"]


@pytest.mark.parametrize("back", [1, 2])
def test_rounds_that_a_restored_server_asks_for_again_count_once(back: int, undisturbed: bytes) -> None:
    run = begun()
    trees: list[dict[str, Any]] = []
    for _ in range(3):
        trees.append(run.server.state())
        run.play()
    run.server = aq.Server.restore(trees[-back])
    for _ in range(ROUNDS - 3 + back):
        run.play()
    assert run.server.weights.tobytes() == undisturbed
    assert "later" not in run.clients[1].state()["remainder"]


def test_a_late_copy_while_a_restored_server_plays_again_changes_nothing(undisturbed: bytes) -> None:
    run = begun()
    trees: list[dict[str, Any]] = []
    for _ in range(4):
        trees.append(run.server.state())
        run.play()
    run.server = aq.Server.restore(trees[2])
    run.play()
    answer(run, 1, order_of(2))
    for _ in range(2):
        run.play()
    assert run.server.weights.tobytes() == undisturbed


def test_a_client_that_a_restored_server_does_not_ask_again_keeps_its_latest_remainder() -> None:
    """The limit of what an order tells: round 3 looks as it does after a late copy of round 1."""
    one, two, three = (np.full(1, value, dtype=np.float32) for value in (1, 2, 3))
    known = Remainder().after(0, one).after(1, two).after(2, three)
    again = known.before_round(1).after(1, two)
    assert again.value is two
    assert again.before_round(3).value is three
    assert again.before_round(2).value is two
    assert again.before_round(2).later is None
    assert again.before_round(3, taken_back=(2,)).value is two


def test_any_number_of_late_copies_of_one_order_are_late_copies() -> None:
    one, two = (np.full(1, value, dtype=np.float32) for value in (1, 2))
    known = Remainder().after(0, one).after(1, two)
    for _ in range(6):
        known = known.before_round(0).after(0, one)
    assert known.before_round(2).value is two


def test_a_server_that_starts_from_far_back_is_not_taken_for_late_copies() -> None:
    known = Remainder()
    for round in range(10):
        known = known.before_round(round).after(round, np.full(1, round, dtype=np.float32))
    for round in range(4):
        known = known.before_round(round).after(round, np.full(1, 100 + round, dtype=np.float32))
    assert known.later is None
    assert known.before_round(50).value == 103


class SometimesLate(aq.Rule):
    """All is sent, except in rounds 2 to 4, in which nine tenths of an update's energy wait for later ones."""

    name = "sometimes-late"

    def init(self) -> dict[str, Any]:
        return {"round": 0}

    def plan(self, state: dict[str, Any], seen: aq.Seen) -> tuple[dict[str, Any], aq.Plan]:
        late = aq.Plan(max_error=0.9, quantizer="fitted", balanced=True, feedback=True)
        return {"round": state["round"] + 1}, late if 1 <= state["round"] < 4 else aq.Plan()


@pytest.mark.parametrize("restored", [False, True])
def test_what_late_rounds_left_out_is_sent_once_by_the_first_round_that_sends_all(restored: bool) -> None:
    rng, server, client = np.random.default_rng(0), aq.Server(np.zeros(500, "f4"), rule=SometimesLate()), aq.Client(0)
    wanted, behind = np.zeros(500), []
    for _ in range(7):
        update = rng.standard_t(3, 500).astype(np.float32)
        wanted += update
        weights = client.open(server.open([0])[0])
        server.receive(0, client.reply(weights + update, loss=1.0))
        moved = server.close().weights
        behind.append(float(np.square(moved - wanted).sum() / np.square(update).sum()))
        if restored:
            server = aq.Server.restore(server.state(), rule=SometimesLate())
            client = aq.Client.restore(client.state())
    assert behind[:1] + behind[4:] == pytest.approx([0.0] * 4, abs=1e-9)
    assert min(behind[1:4]) > 0.5


def test_late_rounds_count_the_levels_that_clients_chose_and_may_be_undone() -> None:
    class Undoing(SometimesLate):
        name = "undoing"
        needs = frozenset({aq.Need.EARLIER})

        def judge(self, state: dict[str, Any], report: aq.Report) -> tuple[dict[str, Any], aq.Verdict]:
            return state, aq.Verdict.ROLL_BACK if state["round"] == 4 else aq.Verdict.KEEP

    server, client, sent = aq.Server(np.zeros(500, "f4"), rule=Undoing()), aq.Client(0), []
    rng = np.random.default_rng(1)
    remainders = []
    for _ in range(5):
        weights = client.open(server.open([0])[0])
        remainders.append(client._remainder.before_round(client.order.round, client.order.taken_back).value)
        server.receive(0, client.reply(weights + rng.standard_t(3, 500).astype(np.float32), loss=1.0))
        sent.append(server.close().facts)
    assert [facts["s"] for facts in sent[::4]] == [None, None]
    assert all(facts["s"] >= 1 for facts in sent[1:4])
    # Rounds 3 and 4 were taken back, so that round 5 begins with what round 2 left out.
    np.testing.assert_array_equal(remainders[4], remainders[2])
    assert sent[3]["undone"]


def test_what_can_no_longer_be_taken_back_is_forgotten() -> None:
    left = Remainder().after(3, np.ones(2, dtype=np.float32)).all_sent(4)
    assert left.known
    assert left.all_sent(6).known
    assert not left.all_sent(7).known
