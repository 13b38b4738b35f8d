"""The late downlink: the model's change in coarse levels, what is left out in later rounds."""

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.errors import ConfigError
from adaquantfl.protocol.late import Late

SIZE = 6_000


def play(server: aq.Server, rounds: int, wanted: np.ndarray, clients: int = 3) -> list[dict]:
    ends, facts = [aq.Client(i) for i in range(clients)], []
    for _ in range(rounds):
        for client, order in server.open(range(clients)).items():
            weights = ends[client].open(order)
            assert (weights == server.weights).all()  # the model that was sent is the model
            server.receive(client, ends[client].reply(weights + wanted, loss=1.0))
        facts.append(server.close().facts)
    return facts


def test_it_costs_one_frame_and_delivers_all_in_the_end() -> None:
    rng = np.random.default_rng(3)
    wanted = rng.standard_t(3, SIZE).astype(np.float32)
    late, exact = (
        aq.Server(np.zeros(SIZE, dtype=np.float32), rule=aq.FullPrecision(), downlink=name)
        for name in ("late", "exact")
    )
    facts = play(late, 40, wanted)
    play(exact, 40, wanted)
    error = np.linalg.norm(late.weights - exact.weights) / np.linalg.norm(exact.weights)
    assert error < 0.06  # it lags behind by about two rounds of 40
    down = np.diff([one["wire_bytes_down"] for one in facts])
    assert down[-1] < 3 * 4 * SIZE / 20
    assert down[1] > down[-1]  # the first rounds are sent almost whole


def test_frames_of_clients_are_passed_on_once_noise_is_measured_and_not_in_every_round() -> None:
    """The server measures training by noise that it knows: in rounds 2, 4, 8 and so on it sends a frame of its own."""
    rng = np.random.default_rng(3)
    server, ends, own_frames = aq.Server(np.zeros(SIZE, dtype=np.float32)), [aq.Client(i) for i in range(2)], set()
    common = rng.standard_normal(SIZE).astype(np.float32)
    for round in range(1, 19):
        for client, order in server.open(range(2)).items():
            weights = ends[client].open(order)
            own = rng.standard_normal(SIZE).astype(np.float32)
            server.receive(client, ends[client].reply(weights + 0.01 * (common + own), loss=1.0))
        server.close()
        if server.current.trajectory.downlink["random"]:
            own_frames.add(round)
    assert own_frames >= {1, 2, 3, 4, 8, 16}
    assert len(own_frames) < 12, "in the others the clients' frames are smaller"


def test_the_noise_is_smaller_where_momentum_repeats_it() -> None:
    shares, wanted = {}, np.random.default_rng(3).standard_normal(SIZE).astype(np.float32)
    for step in ("sum", "momentum"):
        server = aq.Server(np.zeros(SIZE, dtype=np.float32), step=step, downlink=Late(private=True))
        play(server, 3, wanted)
        downlink = server.current.trajectory.downlink
        left, sent = (float(np.sum(np.square(downlink[name]))) for name in ("remainder", "sent"))
        shares[step] = left / sent
    assert shares["momentum"] < 0.4 * shares["sum"]


def test_an_error_that_is_none_is_refused() -> None:
    for error in (0.0, 1.0, float("nan"), True, "half"):
        with pytest.raises(ConfigError, match="left for later"):
            Late(error)
