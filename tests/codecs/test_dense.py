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
from adaquantfl.codecs.frame import read_frame
from adaquantfl.codecs.varints import varint
from support import reference_decoder
from support.frames import dense_body, entropy_bytes, framed, levels_of, read_or_refused, sealed

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


def read(levels: aq.Levels, body: bytes) -> bool:
    return read_or_refused(in_frame(levels, body))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_goes_in_comes_out_within_one_percent_of_the_entropy(shape: str) -> None:
    for d in (5, 1_000_003):
        levels = drawn(shape, d)
        frame = aq.encode(levels, "dense")
        assert aq.decode(frame, d) == levels
    assert len(read_frame(frame).body) <= 1.01 * entropy_bytes(levels.values)


@pytest.mark.parametrize(
    ("kind", "d"), [("pairs", CHUNK + 1), ("few pairs", 65), ("int8", 64), ("int16", 1), ("wide", 1000)]
)
def test_every_kind_of_body_is_read_by_both_decoders_at_any_address(kind: str, d: int) -> None:
    levels, body = body_of(kind, d)
    frame = in_frame(levels, body)
    assert aq.decode(memoryview(b"x" + frame)[1:], d) == levels
    assert reference_decoder.decode(frame).values == levels.values.tolist()


@pytest.mark.parametrize("s", [1, 127, 128, 32_767, 32_768, 65_535])
def test_extreme_levels_come_through(s: int, rng: np.random.Generator) -> None:
    alternating = np.where(np.arange(70_001) % 2, -s, s)
    for values in (alternating[:1], np.full(70_001, -s), alternating, rng.integers(-s, s + 1, 70_001)):
        levels = levels_of(values, s)
        assert aq.decode(aq.encode(levels, "dense")) == levels


def test_levels_that_one_table_can_hardly_hold_come_through(rng: np.random.Generator) -> None:
    """More distinct levels than slots; and intervals are aligned: one that holds -32767 may begin at -32768."""
    for values in (rng.choice(rng.integers(-65_535, 65_536, 20_000), 300_000), rng.integers(-32_767, -20_000, 300_000)):
        levels = levels_of(values, 65_535)
        assert aq.decode(aq.encode(levels, "dense")) == levels


@settings(max_examples=100)
@given(data=st.data(), s=st.integers(1, 65_535), kind=st.sampled_from([None, *KINDS]))
def test_any_levels_come_through(data: st.DataObject, s: int, kind: str | None) -> None:
    top = min(s, 7) if kind and KINDS[kind][0] else s
    some = st.lists(st.one_of(st.integers(-top, top), st.sampled_from([-top, -1, 0, 1, top])), min_size=1, max_size=300)
    levels = levels_of(data.draw(some), s)
    frame = in_frame(levels, dense_body(levels, *KINDS[kind])) if kind else aq.encode(levels, "dense")
    assert aq.decode(frame) == levels


def test_one_level_alone_takes_only_the_states() -> None:
    assert len(read_frame(aq.encode(levels_of(np.full(65_536, 3), 7), "dense")).body) <= 28


def test_levels_at_any_address_give_the_same_bytes() -> None:
    odd = np.random.default_rng(0).integers(-1, 2, 300_001).astype(np.int8)[1:]
    frames = {aq.encode(aq.Levels(values, np.float32(1), 1), "dense") for values in (odd, odd.copy())}
    assert len(frames) == 1


def test_short_vectors_have_few_states() -> None:
    for d, lanes in ((1000, 4), (30_000, 16), (900_000, 64)):
        body = read_frame(aq.encode(drawn("ternary", d, 1), "dense")).body
        assert (4, 16, 64)[body[0] >> 4] == lanes


# Bodies that nobody wrote: refused with the rule that they break, or read as some levels within -s to s.


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_cut_anywhere_is_refused(kind: str) -> None:
    levels, body = body_of(kind, 300)
    assert read(levels, body)
    assert not any(read(levels, body[:length]) for length in range(len(body)))
    assert not any(read(levels, body + bytes(behind)) for behind in (1, 2, 4, 256))


@pytest.mark.parametrize("kind", ["pairs", "int8"])
def test_a_flipped_bit_never_does_more_than_be_refused(kind: str) -> None:
    (levels, body), count = body_of(kind, 301), 0
    for bit in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        count += read(levels, bytes(flipped))
    if kind == "pairs":  # in intervals, plain bits can change unnoticed
        assert count < 8  # c does not matter for one chunk


def test_random_streams_never_do_more_than_be_refused(rng: np.random.Generator) -> None:
    for kind, (pairs, lanes) in KINDS.items():
        for d in (1, CHUNK + 1000):
            levels, body = body_of(kind, d)
            states = rng.integers(2**15, 2**31, lanes, dtype=np.uint32).tobytes()
            assert not (read(levels, body[: -len(states)] + states) and pairs)  # without pairs, low bits may lie there


@given(st.binary(max_size=300), st.integers(1, 300), st.integers(1, 100))
def test_any_bytes_are_read_or_refused(body: bytes, s: int, d: int) -> None:
    for start in (b"", b"\0\x10"):
        read(levels_of(np.zeros(d), s), start + body)


STATES = struct.pack("<4I", *[2**15] * 4)
ALL = bytes([0x80, 0x20])  # 4096


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"", "TABLE_END"),
        (b"\x30\x10" + STATES, "STATES"),
        (b"\0\x0f" + STATES, "EXPONENT"),
        (b"\0\x15" + STATES, "EXPONENT"),
        (b"\x02\x10" + STATES, "PAIRS"),
        (b"\x08\x10" + STATES, "PAIRS"),
        (b"\x01\x10\0\0\0\0\1\0\0\0\0\0" + STATES, "PAIRS_SUM"),
        (b"\x01\x10\0\0\0\0" + ALL + b"\1\0\0\0\0" + STATES, "PAIRS_SUM"),
        (b"\x01\x10\0\0\0\0" + ALL + b"\0\0\0\0" + b"\1\0\0\0" + STATES, "STREAMS"),
        (b"\x01\x10\0\0\0\0" + ALL + b"\0\0\0\0" + b"\0\1\0\0" + STATES, "TABLE_PADDING"),
        (b"\0\x10\1\x11\1" + ALL + b"\0" + STATES, "TABLE_WIDTH"),
        (b"\0\x10\2\1\1" + ALL + b"\0" + STATES, "TABLE_COUNT"),
        (b"\0\x10\1\0\0" + ALL + b"\0" + STATES, "TABLE_COUNT"),
        (b"\0\x10\0\0\3\x80\x10\x80\x10\0\0\0" + STATES, "TABLE_SUM"),  # behind 2048 + 2048
        (b"\0\x10\1\0\1\x81\x20\0" + STATES, "TABLE_SUM"),
        (b"\0\x10\x81\0\0\1" + ALL + b"\0" + STATES, "TABLE_NUMBER"),
        (b"\0\x10\1\0\1" + ALL + b"\x80\0\0\0\0\0" + STATES, "TABLE_NUMBER"),
        (b"\x01\x10" + ALL + bytes(12) + STATES, "STREAM"),  # the odd element's partner is -1
        (b"\0\x10\1\0\1" + ALL + b"\0" + bytes(16), "STREAM"),  # states of 0
        (b"\0\x10\1\0\1" + ALL + b"\0" + b"\xff" * 16, "STREAM"),
        (b"\0\x10\1\0\1" + ALL + b"\0" + struct.pack("<I", 2**15 + 1) + STATES[4:], "STREAM"),
    ],
)
def test_a_lying_head_is_refused(body: bytes, rule: str) -> None:
    frame = in_frame(levels_of([0], 1), body)
    with pytest.raises(aq.FrameError, match=f"the rule {rule} of"):
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
        assert not read(levels_of([0], 40), body + low)


def test_words_that_move_between_chunks_are_refused() -> None:
    levels = of_kind("pairs", 4 * CHUNK)  # two chunks of pairs
    body = bytearray(dense_body(levels, True, 64))
    place = 2 + 9 * 2  # behind nine frequencies, each of two bytes, as both lengths
    assert all(byte > 127 for byte in body[2 : place + 4 : 2])
    body[place], body[place + 2] = body[place] ^ 1, body[place + 2] ^ 1
    assert not read(levels, bytes(body))


def test_a_dimension_that_the_body_cannot_hold_is_refused_before_memory_is_taken() -> None:
    frame = bytearray(in_frame(levels_of([0], 1), b"\0\x10\1\0\1" + ALL + b"\0" + STATES))
    frame[16:24] = struct.pack("<Q", 2**32)
    with pytest.raises(aq.FrameError, match="rule DENSE_SIZE of"):
        aq.decode(sealed(frame), 2**32)
