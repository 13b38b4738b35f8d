"""The dense code is within 1 % of the levels' entropy, loses nothing, and refuses what it did not write."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl import core
from adaquantfl.codecs.frame import TILE, read_frame
from adaquantfl.codecs.varints import varint
from adaquantfl.quantizers.levels import level_dtype
from support import reference_decoder
from support.frames import dense_body, framed, sealed

CHUNK = 2**16
Draw = Callable[[np.random.Generator, int], npt.NDArray[np.float64]]
SHAPES: dict[str, Draw] = {
    "tenth": lambda rng, d: rng.choice([-1.0, 0.0, 1.0], d, p=[0.05, 0.9, 0.05]),
    "ternary": lambda rng, d: rng.choice([-1.0, 0.0, 1.0], d, p=[0.2, 0.6, 0.2]),
    "gauss 3": lambda rng, d: 3 * rng.standard_normal(d),
    "gauss 51": lambda rng, d: 51 * rng.standard_normal(d),
    "gauss 3000": lambda rng, d: 3000 * rng.standard_normal(d),
    "uniform 7": lambda rng, d: rng.integers(-7, 8, d).astype(float),
    "uniform 40000": lambda rng, d: rng.integers(-40_000, 40_001, d).astype(float),
    "cauchy": lambda rng, d: 5 * rng.standard_t(1, d),
    "one-sided": lambda rng, d: rng.exponential(30, d),
    "every seventh": lambda rng, d: 7.0 * rng.integers(-100, 101, d),
}
# Of the kinds of bodies: pairs or not, and how many states.
KINDS = {"pairs": (True, 64), "few pairs": (True, 4), "int8": (False, 16), "int16": (False, 64), "wide": (False, 16)}


def levels_of(values: npt.ArrayLike, s: int) -> aq.Levels:
    clipped = np.clip(np.rint(np.asarray(values)), -s, s).astype(level_dtype(s))
    return aq.Levels(clipped, np.float32(1.5), s)


def drawn(shape: str, d: int, s: int = 65_535) -> aq.Levels:
    return levels_of(SHAPES[shape](np.random.default_rng(5), d), s)


def of_kind(kind: str, d: int) -> aq.Levels:
    shape, s = {
        "pairs": ("ternary", 1), "few pairs": ("uniform 7", 9), "int8": ("gauss 3", 127), "int16": ("gauss 51", 4000),
        "wide": ("gauss 3000", 65_535),
    }[kind]  # fmt: skip
    return drawn(shape, d, s)


def body_of(kind: str, d: int) -> tuple[aq.Levels, bytes]:
    levels = of_kind(kind, d)
    if kind == "wide":  # more levels than slots: as the library writes them
        return levels, bytes(read_frame(aq.encode(levels, "dense")).body)
    return levels, dense_body(levels, *KINDS[kind])


def in_frame(levels: aq.Levels, body: bytes) -> bytes:
    return framed(levels, core.DENSE, body)


# What goes in comes out.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d", [5, 65_537])
def test_decoding_undoes_encoding(shape: str, d: int) -> None:
    levels = drawn(shape, d)
    assert aq.decode(aq.encode(levels, "dense"), d) == levels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 64, 65, CHUNK + 1])
def test_every_kind_of_body_is_read_by_both_decoders(kind: str, d: int) -> None:
    levels, body = body_of(kind, d)
    assert aq.decode(in_frame(levels, body), d) == levels
    assert reference_decoder.decode(in_frame(levels, body)).values == levels.values.tolist()


@pytest.mark.parametrize("s", [1, 127, 128, 32_767, 32_768, 65_535])
@pytest.mark.parametrize("d", [1, 70_001])
def test_extreme_levels_come_through(s: int, d: int, rng: np.random.Generator) -> None:
    alternating = np.where(np.arange(d) % 2, -s, s)
    for values in (np.zeros(d), np.full(d, s), np.full(d, -s), alternating, rng.integers(-s, s + 1, d)):
        levels = levels_of(values, s)
        assert aq.decode(aq.encode(levels, "dense"), d) == levels


def test_levels_that_one_table_can_hardly_hold_come_through(rng: np.random.Generator) -> None:
    """More distinct levels than slots; and intervals are aligned: one that holds -32767 may begin at -32768."""
    for values in (rng.choice(rng.integers(-65_535, 65_536, 20_000), 300_000), rng.integers(-32_767, -20_000, 300_000)):
        levels = levels_of(values, 65_535)
        assert aq.decode(aq.encode(levels, "dense"), 300_000) == levels


@settings(max_examples=150, deadline=None)
@given(data=st.data(), s=st.integers(1, 65_535), kind=st.sampled_from([None, *KINDS]))
def test_any_levels_come_through(data: st.DataObject, s: int, kind: str | None) -> None:
    top = min(s, 7) if kind and KINDS[kind][0] else s
    some = st.lists(st.one_of(st.integers(-top, top), st.sampled_from([-top, -1, 0, 1, top])), min_size=1, max_size=300)
    levels = levels_of(data.draw(some), s)
    frame = in_frame(levels, dense_body(levels, *KINDS[kind])) if kind else aq.encode(levels, "dense")
    assert aq.decode(frame) == levels


def test_one_level_alone_takes_only_the_states() -> None:
    assert len(read_frame(aq.encode(levels_of(np.full(65_536, 3), 7), "dense")).body) <= 28


def test_integers_of_any_width_and_at_any_address_give_the_same_bytes() -> None:
    levels = drawn("gauss 3", 10_000, s=100)
    wider = aq.Levels(levels.values.astype(np.int64), levels.scale, levels.s)
    assert aq.encode(wider, "dense") == aq.encode(levels, "dense")
    odd = np.random.default_rng(0).integers(-1, 2, 300_001).astype(np.int8)[1:]
    frames = {aq.encode(aq.Levels(values, np.float32(1), 1), "dense") for values in (odd, odd.copy())}
    assert len(frames) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_do_not_depend_on_the_number_of_threads(kind: str) -> None:
    frames = set()
    levels = of_kind(kind, 5 * CHUNK)
    for threads in (1, 2, 5):
        aq.set_threads(threads)
        frame = aq.encode(levels, "dense")
        frames.add(frame)
        assert aq.decode(frame, 5 * CHUNK) == levels
    assert len(frames) == 1


# Sums, counts, size.


@pytest.mark.parametrize("shape", ["ternary", "uniform 40000"])
def test_sums_are_those_of_the_levels(shape: str, rng: np.random.Generator) -> None:
    d = 5 * TILE + 123
    lengths, scales = [100, TILE, d - 100 - TILE], np.array([0.5, 2.0, 0.125], dtype=np.float32)
    levels = aq.Levels(drawn(shape, d).values, scales, 65_535, np.array(lengths))
    total = aq.Accumulator(d)
    total.add(aq.encode(levels, "dense"), -0.75)
    steps = (-0.75 * scales.astype(np.float64) / levels.s).astype(np.float32)
    assert np.array_equal(total.result(), np.repeat(steps, lengths) * levels.values.astype(np.float32))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_body_is_within_one_percent_of_the_entropy(shape: str) -> None:
    d = 1_000_003
    levels = drawn(shape, d)
    size = len(read_frame(aq.encode(levels, "dense")).body)
    counts = np.unique(levels.values, return_counts=True)[1]
    assert size <= 1.01 * float(-np.sum(counts * np.log2(counts / d))) / 8
    assert core.sizes(levels.values, levels.s)[core.DENSE] == pytest.approx(size, rel=0.002)


def test_short_vectors_have_few_states() -> None:
    for d, lanes in ((1000, 4), (30_000, 16), (900_000, 64)):
        body = read_frame(aq.encode(drawn("ternary", d, 1), "dense")).body
        assert (4, 16, 64)[body[0] >> 4] == lanes


# Bodies that nobody wrote: refused with a sentence, or read as some levels within -s to s.


def read_or_refused(body: bytes, s: int, d: int) -> bool:
    try:
        values = aq.decode(in_frame(levels_of(np.zeros(d), s), body), d).values
    except aq.FrameError:
        return False
    assert len(values) == d
    assert np.abs(values.astype(np.int64)).max() <= s
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_cut_anywhere_is_refused(kind: str) -> None:
    levels, body = body_of(kind, 300)
    assert read_or_refused(body, levels.s, 300)
    for length in range(len(body)):
        assert not read_or_refused(body[:length], levels.s, 300)
    for behind in (1, 2, 4, 256):
        assert not read_or_refused(body + bytes(behind), levels.s, 300)


@pytest.mark.parametrize("kind", ["pairs", "int8", "wide"])
def test_a_flipped_bit_never_does_more_than_be_refused(kind: str) -> None:
    (levels, body), read = body_of(kind, 301), 0
    for bit in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        read += read_or_refused(bytes(flipped), levels.s, 301)
    if kind == "pairs":  # in intervals, plain bits can change unnoticed
        assert read < 8  # c does not matter for one chunk


def test_random_streams_never_do_more_than_be_refused(rng: np.random.Generator) -> None:
    for kind, (pairs, lanes) in KINDS.items():
        for d in (1, 64, 1000, CHUNK + 1000):
            levels, body = body_of(kind, d)
            states = rng.integers(2**15, 2**31, lanes, dtype=np.uint32).tobytes()
            read = read_or_refused(body[: -len(states)] + states, levels.s, d)
            assert not (read and pairs)  # without pairs, low bits may lie there


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(1, 300), st.integers(1, 100))
def test_any_bytes_are_read_or_refused(body: bytes, s: int, d: int) -> None:
    read_or_refused(body, s, d)
    read_or_refused(b"\0\x10" + body, s, d)


STATES = struct.pack("<4I", *[2**15] * 4)
ALL = bytes([0x80, 0x20])  # 4096


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "ends within its table"),
        (b"\x30\x10" + STATES, "names no number of states"),
        (b"\0\x0f" + STATES, "2\\^15 symbols"),
        (b"\0\x15" + STATES, "2\\^21 symbols"),
        (b"\x02\x10" + STATES, "Pairs of levels up to 2 with s = 1"),
        (b"\x08\x10" + STATES, "Pairs of levels up to 8"),
        (b"\x01\x10\0\0\0\0\1\0\0\0\0\0" + STATES, "add up to 1 "),
        (b"\x01\x10\0\0\0\0" + ALL + b"\1\0\0\0\0" + STATES, "add up to 4,097"),
        (b"\x01\x10\0\0\0\0" + ALL + b"\0\0\0\0" + b"\1\0\0\0" + STATES, "should have 18 bytes"),
        (b"\x01\x10\0\0\0\0" + ALL + b"\0\0\0\0" + b"\0\1\0\0" + STATES, "padding"),
        (b"\0\x10\1\x11\1" + ALL + b"\0" + STATES, "2\\^17 levels"),
        (b"\0\x10\2\1\1" + ALL + b"\0" + STATES, "with s = 1"),
        (b"\0\x10\1\0\0" + ALL + b"\0" + STATES, "0 intervals"),
        (b"\0\x10\0\0\3\x80\x10\x80\x10\0\0\0" + STATES, "zero"),  # behind 2048 + 2048
        (b"\0\x10\1\0\1\x81\x20\0" + STATES, "add up to more"),
        (b"\0\x10\x81\0\0\1" + ALL + b"\0" + STATES, "as few as it needs"),
        (b"\0\x10\1\0\1" + ALL + b"\x80\0\0\0\0\0" + STATES, "as few as it needs"),
        (b"\x01\x10" + ALL + bytes(12) + STATES, "chunk 0"),  # the odd element's partner is -1
        (b"\0\x10\1\0\1" + ALL + b"\0" + bytes(16), "chunk 0"),  # states of 0
        (b"\0\x10\1\0\1" + ALL + b"\0" + b"\xff" * 16, "chunk 0"),
        (b"\0\x10\1\0\1" + ALL + b"\0" + struct.pack("<I", 2**15 + 1) + STATES[4:], "chunk 0"),
    ],
)
def test_a_lying_head_is_refused(body: bytes, why: str) -> None:
    frame = in_frame(levels_of([0], 1), body)
    with pytest.raises(aq.FrameError, match=why):
        aq.decode(frame)
    with pytest.raises(ValueError, match=r"\w"):
        reference_decoder.decode(frame)


def test_the_least_bodies_are_read() -> None:
    for body in (b"\x01\x10\0\0\0\0" + ALL + bytes(8) + STATES, b"\0\x10\1\0\1" + ALL + b"\0" + STATES):
        assert aq.decode(in_frame(levels_of([0], 1), body)).values.tolist() == [0]


def test_low_bits_that_do_not_fill_their_bytes_are_refused() -> None:
    head = b"\0\x10" + varint(20) + b"\4\1" + ALL + b"\0"  # one interval of 16 levels, so one low bit
    body = head + bytes(-len(head) % 4) + struct.pack("<I", 2**18) + STATES[4:]
    assert aq.decode(in_frame(levels_of([0], 40), body + b"\1")).values.tolist() == [-19]
    for low in (b"", b"\2", b"\1\0"):
        with pytest.raises(aq.FrameError, match="low bits"):
            aq.decode(in_frame(levels_of([0], 40), body + low))


def test_words_that_move_between_chunks_are_refused() -> None:
    levels = of_kind("pairs", 4 * CHUNK)  # two chunks of pairs
    body = bytearray(dense_body(levels, True, 64))
    place = 2 + 9 * 2  # behind nine frequencies, each of two bytes, as both lengths
    assert all(byte > 127 for byte in body[2 : place + 4 : 2])
    assert read_or_refused(bytes(body), levels.s, 4 * CHUNK)
    body[place], body[place + 2] = body[place] ^ 1, body[place + 2] ^ 1
    assert not read_or_refused(bytes(body), levels.s, 4 * CHUNK)


def test_a_dimension_that_the_body_cannot_hold_is_refused_before_memory_is_taken() -> None:
    frame = bytearray(in_frame(levels_of([0], 1), b"\0\x10\1\0\1" + ALL + b"\0" + STATES))
    frame[16:24] = struct.pack("<Q", 2**32)
    with pytest.raises(aq.FrameError, match="needs at least"):
        aq.decode(sealed(frame), 2**32)


def test_a_body_at_an_odd_address_is_read() -> None:
    for kind in KINDS:
        levels, body = body_of(kind, 1000)
        assert aq.decode(memoryview(b"x" + in_frame(levels, body))[1:]) == levels
