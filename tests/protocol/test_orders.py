"""Orders for clients of which the carrier knows what they hold."""

import numpy as np
import pytest

import adaquantfl as aq


def played(server: aq.Server, client: aq.Client, step: float = 1.0) -> None:
    """One round of one client."""
    orders = server.open([0])
    weights = client.open(orders[0])
    server.receive(0, client.reply(weights + np.float32(step), loss=1.0))
    server.close()


def test_an_order_starts_from_what_the_carrier_says_the_client_holds() -> None:
    server, client = aq.Server(np.zeros(4000, np.float32), rule="adaquant"), aq.Client(0)
    played(server, client)
    earlier = aq.Client.restore(client.state())  # holds the model of the first round
    played(server, client)
    server.forget([0])
    orders = server.open([0])
    whole, steps = server.order(0, holds=None), server.order(0, holds=earlier.holds)
    assert len(whole) > 16_000 > 1000 > len(steps)
    assert orders[0] == whole  # the server itself knows nothing of the client
    np.testing.assert_array_equal(earlier.open(steps), server.weights)
    named = server.order(0, holds=server.digest)
    assert len(named) < len(steps)
    np.testing.assert_array_equal(earlier.open(named), server.weights)


def test_a_digest_that_no_steps_start_from_gets_the_whole_model() -> None:
    server = aq.Server(np.zeros(100, np.float32))
    server.open([0])
    assert server.order(0, holds=b"x" * 16) == server.order(0, holds=None)


def test_bytes_down_are_those_of_the_orders_and_of_a_whole_model_sent_again() -> None:
    server, client = aq.Server(np.zeros(4000, np.float32), rule="adaquant"), aq.Client(0)
    played(server, client)
    before = server.current.ledger.wire_bytes_down
    orders = server.open([0])
    server.order(0, holds=server.digest)
    server.order(0, evaluate=True)
    again = server.order(0, holds=None)
    weights = client.open(orders[0])
    server.receive(0, client.reply(weights, loss=1.0))
    server.close()
    assert server.current.ledger.wire_bytes_down - before == len(orders[0]) + len(again)


def test_an_order_to_evaluate_needs_no_round_and_no_client_of_it() -> None:
    server, client = aq.Server(np.ones(5, np.float32)), aq.Client(7)
    np.testing.assert_array_equal(client.open(server.order(7, evaluate=True)), np.ones(5))
    with pytest.raises(aq.EngineError, match="nothing to reply"):
        client.reply(np.ones(5, np.float32), loss=1.0)
    server.open([0])
    with pytest.raises(aq.EngineError, match="Client 7 was not asked"):
        server.order(7)


def test_orders_share_the_models_bytes_until_they_are_read() -> None:
    server = aq.Server(np.zeros(1_000_000, np.float32))
    orders = server.open(range(50))
    assert len({id(parcel) for parcel in orders._parcels.values()}) == 1
