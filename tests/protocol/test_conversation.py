"""Server and Client over transports that nobody wrote for them: bytes in folders and queues, lost, late and hostile."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.rules import DAdaQuant
from support import quadratic

RULES: dict[str, aq.Rule] = {
    "adaquant": aq.AdaQuant(s0=2, interval=4.0),
    "3bit": aq.Fixed(bits=3),
    "dadaquant": DAdaQuant(s0=2, patience=2),
    "auto": aq.Auto(),
}
COMBINATIONS = [  # every rule, quantizer and downlink, and most pairs of a kind of rule and a kind of downlink
    ("adaquant", "uniform", "model"), ("adaquant", "rotated", "exact"), ("dadaquant", "lattice", "late"),
    ("3bit", "eden", "exact"), ("auto", "centroid", "late"), ("dadaquant", "natural", "model"),
    ("3bit", "stc", "exact"), ("3bit", "nearest", "late"), ("auto", "fitted", "exact"), ("auto", "uniform", "model"),
]  # fmt: skip


def new_server(rule: str, quantizer: str, downlink: str, **more: Any) -> aq.Server:
    return aq.Server(
        quadratic.start(),
        rule=RULES[rule],
        quantizer=quantizer,
        downlink=downlink,
        seed=5,
        sparsity=20,
        **{"min_clients": 1, **more},
    )


def clients(count: int = 3) -> dict[int, aq.Client]:
    return {number: aq.Client(number) for number in range(count)}


def lost(round: int, client: int) -> bool:
    """One client's reply is lost in every third round."""
    return (round + client) % 3 == 0


def same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def through_a_folder(server: aq.Server, folder: Path, rounds: int) -> aq.Server:
    """Orders and replies are files; both ends are made anew from their states before each message."""
    states: dict[int, Any] = {number: client.state() for number, client in clients().items()}
    for round in range(rounds):
        for number, order in server.open(list(states), eta=0.1).items():
            (folder / f"{round}-{number}.order").write_bytes(order)
        for number in states:
            client = aq.Client.restore(states[number])
            order = (folder / f"{round}-{number}.order").read_bytes()
            (folder / f"{round}-{number}.reply").write_bytes(quadratic.answer(client, order))
            states[number] = client.state()
        for number in states:
            server = aq.Server.restore(server.state())  # killed and started again, in the middle of the round
            if not lost(round, number):
                server.receive(number, (folder / f"{round}-{number}.reply").read_bytes())
        server.close()
    return server


def through_a_queue(server: aq.Server, rounds: int, seed: int) -> aq.Server:
    """Replies arrive in any order, some twice, some changed on the way and some a round late."""
    shuffle, ends = random.Random(seed), clients()
    late: deque[tuple[int, bytes]] = deque()
    for round in range(rounds):
        queue = [(n, quadratic.answer(ends[n], order)) for n, order in server.open(list(ends), eta=0.1).items()]
        arriving = [(n, reply) for n, reply in queue if not lost(round, n)]
        arriving += arriving[:1]  # the same message twice
        arriving += [(n, reply[: len(reply) // 2]) for n, reply in queue]  # cut off
        arriving += [(n, bytes([reply[0] ^ 1]) + reply[1:]) for n, reply in queue]
        arriving += [(n, reply[:-5] + bytes([reply[-5] ^ 64]) + reply[-4:]) for n, reply in queue]
        arriving += [(n, b"") for n, _ in queue] + [(99, queue[0][1])] + list(late)
        late = deque((n, reply) for n, reply in queue if lost(round, n))
        shuffle.shuffle(arriving)
        accepted = 0
        for number, reply in arriving:
            try:
                server.receive(number, reply)
                accepted += 1
            except aq.Refused:
                continue
        assert accepted == sum(not lost(round, n) for n in ends)
        server.close()
    return server


@pytest.mark.parametrize(("rule", "quantizer", "downlink"), COMBINATIONS)
def test_every_transport_ends_in_the_same_model(rule: str, quantizer: str, downlink: str, tmp_path: Path) -> None:
    plain = new_server(rule, quantizer, downlink)
    quadratic.play(plain, clients(), 4, lost=lost)
    same(through_a_folder(new_server(rule, quantizer, downlink), tmp_path, 4).weights, plain.weights)
    same(through_a_queue(new_server(rule, quantizer, downlink), 4, seed=1).weights, plain.weights)


@pytest.mark.parametrize("dtype", ["float16", "float64", "float32"])
def test_arrays_of_any_float_type_keep_their_type_and_integers_are_averaged(dtype: str) -> None:
    first = {
        "w": np.linspace(0, 1, 6).astype(dtype),
        "n": np.array([4, 2**40]),
        "flag": np.array(True),
        "none": np.empty(0),
    }
    server = aq.Server(first, rule=aq.FullPrecision(), downlink="exact")
    ends = clients(2)
    for number, order in server.open([0, 1]).items():
        given: Any = ends[number].open(order)
        same(given, server.weights)
        trained = {**given, "w": (given["w"] + (number + 1)).astype(dtype), "n": given["n"] + 3 * number}
        server.receive(number, ends[number].reply(trained, loss=1.0, examples=1))
    after: Any = server.close().weights
    assert {name: after[name].dtype for name in after} == {name: np.asarray(first[name]).dtype for name in first}
    np.testing.assert_allclose(after["w"].astype(np.float64), first["w"].astype(np.float64) + 1.5, atol=2e-3)
    assert after["n"].tolist() == [6, 2**40 + 2]


def test_too_few_replies_name_who_is_missing_and_the_round_stays_open() -> None:
    server, ends = new_server("3bit", "uniform", "exact", min_clients=2), clients()
    orders = server.open([0, 1, 2])
    server.receive(0, quadratic.answer(ends[0], orders[0]))
    server.absent(2, "its battery is empty.")
    with pytest.raises(aq.EngineError, match=r"Round 1: 1 of 3 clients .* client 1: no answer. Client 2: its battery"):
        server.close()
    server.receive(1, quadratic.answer(ends[1], orders[1]))
    assert server.close().facts["missing"] == {2: "its battery is empty."}


def test_a_strategy_of_somebody_else_can_add_up() -> None:
    by_us, by_them = new_server("3bit", "uniform", "exact"), new_server("3bit", "uniform", "exact")
    quadratic.play(by_us, clients(), 3)
    ends = clients()
    for _ in range(3):
        for number, order in by_them.open([0, 1, 2], eta=0.1).items():
            by_them.receive(number, quadratic.answer(ends[number], order))
        heard: Any = by_them.heard()
        total = sum(map(quadratic.examples, heard))
        mean = {
            name: sum(quadratic.examples(n) / total * weights[name] for n, weights in heard.items())
            for name in quadratic.start()
        }
        closed: Any = by_them.close({name: np.asarray(a, quadratic.start()[name].dtype) for name, a in mean.items()})
    for name, array in by_us.weights.items():  # type: ignore[union-attr]
        np.testing.assert_allclose(closed.weights[name], array, rtol=2e-5, atol=2e-6)
