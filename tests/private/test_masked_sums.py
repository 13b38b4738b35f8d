"""Secure aggregation: the sum is right, drop-outs and lies are survived or refused, and a server sees nothing else."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from adaquantfl.errors import ConfigError, EngineError, FrameError
from adaquantfl.private import shamir
from adaquantfl.private.contributor import own_mask
from adaquantfl.private.masks import Words
from adaquantfl.private.neighbours import FAILURE, LEAK, degree, ring
from adaquantfl.private.packet import ADVERTISE, KEYS, MAILBOX, REVEALED, SURVIVORS, Packet, numbers, read_numbers
from support.masked_sums import SESSION, Cast, play


@pytest.fixture(autouse=True)
def _same_ring(monkeypatch):
    """The neighbours are those of a fixed seed, so that no test of chance fails by chance."""
    monkeypatch.setattr("adaquantfl.private.neighbours.secrets.SystemRandom", lambda: random.Random(7))


def check_sum(cast, collector, clients):
    values, facts = cast.expected(clients)
    assert collector.sum.clients == tuple(clients)
    np.testing.assert_array_equal(collector.sum.values, values)
    np.testing.assert_array_equal(collector.sum.facts, facts)


@settings(max_examples=12, deadline=None)
@given(st.integers(3, 12), st.integers(1, 32), st.integers(1, 90), st.integers(0, 3))
def test_masks_cancel_whatever_the_modulus(clients, bits, count, facts):
    cast = Cast(clients, Words(count, bits, facts))
    check_sum(cast, play(cast, least=clients), range(clients))


EARLY, LATE = {0: {0, 1, 2}, 1: {3, 4, 5}, 2: {6, 7, 8}}, {3: {9, 10, 11}}


@pytest.mark.parametrize("gone", [{0: range(12)}, {1: range(12)}, {2: range(12)}, {3: range(12)}, EARLY | LATE])
def test_thirty_percent_may_drop_out_at_any_step(gone):
    cast = Cast(40, Words(50, 8, 2))
    early = {client for step, clients in gone.items() if step < 3 for client in clients}
    check_sum(cast, play(cast, least=28, gone=gone), [n for n in range(40) if n not in early])


@pytest.mark.parametrize("step", range(4))
def test_a_sum_of_too_few_is_not_opened(step):
    with pytest.raises(EngineError, match="the sum needs 28"):
        play(Cast(40, Words(50, 8, 2)), least=28, gone={step: range(13)})


def p_value(data: bytes) -> float:
    """How probable bytes are that are at least as uneven as these, if they are uniform."""
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    expected = len(data) / 256
    return float(chi2.sf(np.square(counts - expected).sum() / expected, 255))


def test_what_a_server_sees_of_a_client_is_uniform():
    """Keys and neighbours are fixed; with random ones each of the 20 tests would fail in 1 of 10^6 cases."""
    cast = Cast(20, Words(20_000, 8, 0))
    cast.values = {n: np.full(20_000, n, np.uint8) for n in range(20)}
    play(cast, least=14)
    assert all(p_value(Packet.unpack(data).parts[0]) > 1e-6 for data in cast.masked.values())
    assert p_value(cast.values[3].tobytes()) < 1e-6  # of what is under the mask


def test_without_its_own_mask_an_update_is_still_uniform():
    """The server recovers the seed of everybody who is in the sum; the masks of the pairs are left then.

    Likewise for the difference of two clients, and for the sum of 19 of the 20. The tests have 1 false alarm in 10^6.
    """
    cast = Cast(20, Words(20_000, 8, 0))
    cast.values = {n: np.full(20_000, 5, np.uint8) for n in range(20)}
    seeds = {n: one.seed for n, one in cast.contributors.items()}
    play(cast, least=14)
    left = {
        n: cast.words.unpack(*Packet.unpack(data).parts)[0] - own_mask(seeds[n], SESSION, cast.words)[0]
        for n, data in cast.masked.items()
    }
    assert all(p_value(one.tobytes()) > 1e-6 for one in left.values())
    assert all(p_value((left[a] - left[b]).tobytes()) > 1e-6 for a, b in combinations(range(6), 2))
    assert p_value(sum(left[n] for n in range(19)).tobytes()) > 1e-6
    assert set((sum(left.values()) & 0xFF).tolist()) == {100}  # and all together are the sum


def survivors(alive, gone):
    return Packet(SURVIVORS, SESSION, (numbers(alive), numbers(gone))).pack()


def waiting_client():
    """A client that has not revealed anything yet, and its neighbours."""
    cast = Cast(12, Words(20, 8, 1))
    return cast.contributors[0], play(cast, least=9, gone={3: set(range(3))}).neighbours[0]


def test_a_client_never_reveals_both_secrets_of_a_neighbour_and_answers_once():
    one, near = waiting_client()
    with pytest.raises(FrameError, match="both secrets"):
        one.reveal(survivors(near, near[:1]))
    one.reveal(survivors(near, []))
    assert not one.mailbox
    assert not one.seed
    with pytest.raises(FrameError, match="not due"):
        one.reveal(survivors(near[1:], near[:1]))


def test_a_client_reveals_nothing_of_strangers_or_for_too_small_a_sum():
    one, near = waiting_client()
    with pytest.raises(FrameError, match="no neighbours"):
        one.reveal(survivors([*near, 99], []))
    with pytest.raises(FrameError, match="at least"):
        one.reveal(survivors(near[: one.threshold - 1], near[one.threshold - 1 :]))


def test_shares_that_the_server_changed_are_noticed():
    one, near = waiting_client()
    box = bytearray(one.mailbox[near[0]])
    box[5] ^= 1
    one.mailbox[near[0]] = bytes(box)
    with pytest.raises(FrameError, match="not authentic"):
        one.reveal(survivors(near, []))


def test_a_client_refuses_neighbours_that_hide_nothing():
    cast = Cast(5, Words(5, 8, 0))
    one = cast.contributors[0]
    keys = {n: Packet.unpack(cast.contributors[n].advertise()).parts for n in range(5)}

    def told(near, threshold, same=False):
        joined = b"".join(keys[near[0] if same else n][0] + keys[near[0] if same else n][1] for n in near)
        return Packet(KEYS, SESSION, (numbers(near), numbers([threshold]), joined)).pack()

    for near, threshold in (([1], 1), ([0, 1, 2], 2), ([1, 2], 3), ([1, 2], 0)):
        with pytest.raises(FrameError, match="hide nothing"):
            one.share(told(near, threshold))
    with pytest.raises(FrameError, match="same keys"):
        one.share(told([1, 2], 2, same=True))
    one.share(told([1, 2, 3], 2))
    with pytest.raises(FrameError, match="at least 2"):
        one.mask(Packet(MAILBOX, SESSION, (b"", b"")).pack(), cast.words, cast.values[0], cast.facts[0])


def test_a_neighbour_that_reveals_a_false_share_is_got_around():
    def lie(step, client, message):
        if step != 3 or client != 4:
            return message
        (shares,) = Packet.unpack(message).parts
        return Packet(REVEALED, SESSION, (bytes(len(shares)),)).pack()

    cast = Cast(20, Words(30, 8, 2))
    check_sum(cast, play(cast, least=14, gone={2: {7, 9}}, change=lie), [n for n in range(20) if n not in (7, 9)])


def test_too_many_false_shares_lose_the_round_and_say_so():
    def lie(step, client, message):
        (*_, last) = Packet.unpack(message).parts
        return message if step != 3 or client < 4 else Packet(REVEALED, SESSION, (bytes(len(last)),)).pack()

    with pytest.raises(EngineError, match="cannot be taken off"):
        play(Cast(20, Words(30, 8, 2)), least=14, change=lie)


@pytest.mark.parametrize(("step", "part"), [(0, b"short"), (1, b"x" * 82), (2, b"x" * 10), (3, b"")])
def test_a_message_of_another_size_is_refused(step, part):
    def lie(now, client, message):
        return Packet(Packet.unpack(message).kind, SESSION, (part,)).pack() if now == step and client == 1 else message

    with pytest.raises(FrameError, match="bytes"):
        play(Cast(8, Words(30, 8, 2)), least=6, change=lie)


def test_a_message_of_another_round_or_a_second_one_is_refused():
    def replay(step, client, message):
        kind, parts = Packet.unpack(message).kind, Packet.unpack(message).parts
        return Packet(kind, b"another session!", parts).pack() if step == 1 else message

    with pytest.raises(FrameError, match="of this round"):
        play(Cast(8, Words(30, 8, 2)), least=6, change=replay)
    cast = Cast(4, Words(5, 8, 0))
    cast.contributors[0].advertise()
    collector = play(Cast(4, Words(5, 8, 0)), least=4)
    with pytest.raises(FrameError, match="dropped out"):
        collector.receive(17, b"")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_messages_raise_frame_errors_only(data):
    message = Packet(ADVERTISE, SESSION, (b"a" * 32, b"", b"b" * 200)).pack()
    place = data.draw(st.integers(0, len(message) - 1))
    changed = bytearray(message)
    changed[place] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(changed), message[:place]):
        with pytest.raises(FrameError):
            Packet.unpack(damaged)
    for wrong in (b"abc", numbers([1, 1])):
        with pytest.raises(FrameError):
            read_numbers(wrong)


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(2, 12), st.data())
def test_any_threshold_of_the_shares_gives_the_secret(secret, holders, data):
    threshold = data.draw(st.integers(1, holders))
    places = list(range(1, holders + 1))
    shares = dict(zip(places, shamir.split(secret, places, threshold), strict=True))
    chosen = data.draw(st.permutations(places))[:threshold]
    assert shamir.join({place: shares[place] for place in chosen}) == secret


def test_fewer_shares_fit_every_secret():
    """With one share fewer, there is a last share for any secret whatever: so they say nothing of it."""
    shares = dict(zip((1, 2, 3), shamir.split(b"s" * 32, (1, 2, 3), 3), strict=True))
    known, other = {1: shares[1], 2: shares[2]}, int.from_bytes(b"t" * 32, "little")
    prime = shamir.PRIME
    # The value at 3 of the polynomial through the known shares whose constant is the other secret.
    points = {0: other, **{place: int.from_bytes(share, "little") for place, share in known.items()}}
    value = 0
    for place, y in points.items():
        top = bottom = 1
        for q in points:
            if q != place:
                top, bottom = top * (3 - q) % prime, bottom * (place - q) % prime
        value = (value + y * top * pow(bottom, -1, prime)) % prime
    assert shamir.join({**known, 3: value.to_bytes(33, "little")}) == b"t" * 32


def test_the_ring_is_regular_symmetric_and_large_enough():
    k, threshold = degree(100, 30, 10)
    near = ring(range(100), k)
    assert {len(set(others)) for others in near.values()} == {k}
    assert all(one in near[other] for one, others in near.items() for other in others)
    # Drawn 20,000 times, no client was left with too few; the bound allows one in 10^6 rounds.
    rng = np.random.default_rng(3)
    stay = rng.hypergeometric(69, 30, k, size=20_000)
    collude = rng.hypergeometric(10, 89, k, size=20_000)
    assert stay.min() >= threshold > collude.max()
    assert FAILURE < 1e-6
    assert LEAK < 1e-12
    with pytest.raises(ConfigError, match="needs 3 clients"):
        degree(2, 0, 0)
    with pytest.raises(ConfigError, match="colluding"):
        degree(10, 6, 5)
