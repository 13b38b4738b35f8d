"""How much a client counts where the server only knows what clients say: `max_examples` bounds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.protocol.limits import ExamplesLimit
from support import quadratic

MOST = 2**32 - 1  # that a reply can say


def closed(told: dict[int, int], **settings: Any) -> tuple[aq.Server, dict[str, Any]]:
    """A round in which each client pulls towards its own point and says that it has so many examples."""
    server = aq.Server(quadratic.start(), rule=aq.Fixed(bits=8), **settings)
    for number, order in server.open(None if "cohort" in settings else list(told), eta=0.1).items():
        client = aq.Client(number)
        trained, loss = quadratic.train(number, client.open(order))
        server.receive(number, client.reply(trained, loss, told[number]))
    return server, server.close().facts


def same(one: aq.Server, other: aq.Server) -> bool:
    return one.model.weights.tobytes() == other.model.weights.tobytes()


@pytest.mark.parametrize("limit", [1000, "10x"])
@pytest.mark.parametrize("downlink", ["model", "exact"])
def test_a_client_that_claims_too_much_counts_as_the_bound(limit: float | str, downlink: str) -> None:
    """The median is 100."""
    server, facts = closed({0: 100, 1: 80, 2: 120, 3: MOST}, max_examples=limit, downlink=downlink)
    expected, _ = closed({0: 100, 1: 80, 2: 120, 3: 1000}, downlink=downlink)
    assert same(server, expected)
    assert facts["capped"] == {3: MOST}
    assert facts["clients"] == 4
    assert server.current.examples == {0: 100, 1: 80, 2: 120, 3: 1000}
    believed, facts = closed({0: 100, 1: 80, 2: 120, 3: MOST})
    assert not same(server, believed)
    assert "capped" not in facts


@pytest.mark.parametrize("limit", [120, "2x"])
def test_honest_claims_change_nothing(limit: float | str) -> None:
    told = {0: 100, 1: 80, 2: 120}
    (server, facts), (plain, _) = closed(told, max_examples=limit), closed(told)
    assert same(server, plain)
    assert "capped" not in facts


def test_the_loss_of_the_round_is_weighted_by_the_bound_too() -> None:
    _, facts = closed({0: 100, 1: 100, 2: MOST}, max_examples="1x")
    _, equal = closed({0: 100, 1: 100, 2: 100})
    assert facts["round_loss"] == equal["round_loss"]


def test_half_of_the_clients_cannot_move_the_median() -> None:
    assert ExamplesLimit.of("3x").capped({0: 10, 1: 12, 2: MOST, 3: MOST}) == {0: 10, 1: 12, 2: 36, 3: 36}


def test_where_sizes_are_known_claims_play_no_part() -> None:
    cohort = Cohort((100, 80, 120))
    (server, facts), (honest, _) = (
        closed({0: 100, 1: 80, 2: last}, cohort=cohort, max_examples=limit) for last, limit in ((MOST, "2x"), (120, 0))
    )
    assert same(server, honest)
    assert "capped" not in facts


def test_the_bound_is_part_of_the_state() -> None:
    server = aq.Server(np.zeros(4, np.float32), max_examples="5x")
    assert aq.Server.restore(server.state()).stages.max_examples == "5x"
