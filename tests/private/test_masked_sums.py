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
from adaquantfl.private.masks import SELF, Words, derived
from adaquantfl.private.neighbours import FAILURE, LEAK, degree, ring
from adaquantfl.private.packet import ADVERTISE, KEYS, MAILBOX, REVEALED, SURVIVORS, Packet, numbers, read_numbers
from support.masked_sums import SESSION, Cast, play


@pytest.fixture(autouse=True)
def _same_ring(monkeypatch):
    """The neighbours are those of a fixed seed, so that no test of chance fails by chance."""
    monkeypatch.setattr("adaquantfl.private.neighbours.secrets.SystemRandom", lambda: random.Random(7))


def check_sum(cast, clients, least=28, **options):
    collector, (values, facts) = play(cast, least, **options), cast.expected(clients)
    assert list(collector.alive) == list(clients)
    np.testing.assert_array_equal(collector.sum[0], values)
    np.testing.assert_array_equal(collector.sum[1], facts)


@settings(max_examples=12, deadline=None)
@given(st.integers(3, 12), st.integers(1, 32), st.integers(1, 90), st.integers(0, 3))
def test_masks_cancel_whatever_the_modulus(clients, bits, count, facts):
    cast = Cast(clients, Words(count, bits, facts))
    check_sum(cast, range(clients), least=clients)


def test_thirty_percent_may_drop_out_at_any_steps():
    """test_rounds.py has each step alone."""
    gone = {step: {3 * step, 3 * step + 1, 3 * step + 2} for step in range(4)}
    check_sum(Cast(40, Words(50, 8, 2)), gone=gone, clients=range(9, 40))


@pytest.mark.parametrize("step", range(4))
def test_a_sum_of_too_few_is_not_opened(step):
    with pytest.raises(EngineError, match="the sum needs 28"):
        play(Cast(40, Words(50, 8, 2)), least=28, gone={step: range(13)})


def p_value(data: bytes) -> float:
    """How probable bytes are that are at least as uneven as these, if they are uniform."""
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    expected = len(data) / 256
    return float(chi2.sf(np.square(counts - expected).sum() / expected, 255))


def masked(number):
    """What each of 20 clients with this number sent, the seed of its own mask, and what is summed."""
    words, seen = Words(20_000, 8, 0), {}

    def note(step, client, message):
        if step == 2:
            seen[client] = words.unpack(*Packet.unpack(message).parts)[0].copy()
        return message

    cast = Cast(20, words)
    for n, one in cast.contributors.items():
        one.values[:] = number(n)
    seeds = {n: one.seed for n, one in cast.contributors.items()}
    play(cast, least=14, change=note)
    return seen, seeds, words


def test_what_a_server_sees_of_a_client_is_uniform():
    """Keys and neighbours are fixed; with random ones each of the 20 tests would fail in 1 of 10^6 cases."""
    seen, _, _ = masked(lambda n: n)
    assert all(p_value(values.tobytes()) > 1e-6 for values in seen.values())
    assert p_value(bytes([3]) * 20_000) < 1e-6  # of what is under the mask


def test_without_its_own_mask_an_update_is_still_uniform():
    """The server recovers the seed of everybody who is in the sum; the masks of the pairs are left then.

    Likewise for the difference of two clients, and for the sum of 19 of the 20. The tests have 1 false alarm in 10^6.
    """
    left, seeds, words = masked(lambda n: 5)
    for n, values in left.items():
        words.mask((values, np.zeros(0, "<u8")), derived(seeds[n], SESSION, SELF), plus=False)
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
        one.answer(survivors(near, near[:1]))
    one.answer(survivors(near, []))
    assert not any((one.mailbox, one.seed, one.mask_key, len(one.values)))
    with pytest.raises(FrameError, match="not due"):
        one.answer(survivors(near[1:], near[:1]))


def test_a_client_reveals_nothing_of_strangers_or_for_too_small_a_sum():
    one, near = waiting_client()
    with pytest.raises(FrameError, match="no neighbours"):
        one.answer(survivors([*near, 99], []))
    with pytest.raises(FrameError, match="at least"):
        one.answer(survivors(near[:1], near[1:]))


def test_shares_that_the_server_changed_are_noticed():
    one, near = waiting_client()
    told, boxes = Packet.unpack(one.mailbox).parts
    one.mailbox = Packet(MAILBOX, SESSION, (told, boxes[:5] + bytes([boxes[5] ^ 1]) + boxes[6:])).pack()
    with pytest.raises(FrameError, match="not authentic"):
        one.answer(survivors(near, []))


def test_a_client_refuses_neighbours_that_hide_nothing():
    cast = Cast(5, Words(5, 8, 0))
    one = cast.contributors[0]
    keys = {n: b"".join(Packet.unpack(cast.contributors[n].advertise()).parts[:2]) for n in range(5)}

    def told(near, threshold, same=False):
        joined = b"".join(keys[near[0] if same else n] for n in near)
        return Packet(KEYS, SESSION, (numbers(near), numbers([threshold]), joined)).pack()

    for near, threshold in (([1], 1), ([0, 1, 2], 2), ([1, 2], 3), ([1, 2], 0)):
        with pytest.raises(FrameError, match="hide nothing"):
            one.answer(told(near, threshold))
    with pytest.raises(FrameError, match="same keys"):
        one.answer(told([1, 2], 2, same=True))
    one.answer(told([1, 2, 3], 2))
    with pytest.raises(FrameError, match="at least 2"):
        one.answer(Packet(MAILBOX, SESSION, (b"", b"")).pack())


def test_a_neighbour_that_reveals_a_false_share_is_got_around():
    def lie(step, client, message):
        if step != 3 or client != 4:
            return message
        (shares,) = Packet.unpack(message).parts
        return Packet(REVEALED, SESSION, (bytes(len(shares)),)).pack()

    cast = Cast(20, Words(30, 8, 2))
    check_sum(cast, [n for n in range(20) if n not in (7, 9)], least=14, gone={2: {7, 9}}, change=lie)


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


def test_a_message_of_another_round_or_of_a_stranger_is_refused():
    def replay(step, client, message):
        kind, parts = Packet.unpack(message).kind, Packet.unpack(message).parts
        return Packet(kind, b"another session!", parts).pack() if step == 1 else message

    with pytest.raises(FrameError, match="of this round"):
        play(Cast(8, Words(30, 8, 2)), least=6, change=replay)
    with pytest.raises(FrameError, match="not asked"):
        play(Cast(4, Words(5, 8, 0)), least=4).receive(17, b"")


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
