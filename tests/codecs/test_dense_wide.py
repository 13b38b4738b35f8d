"""The wide body of the dense codec: the same bytes on every processor, within 1 % of the entropy, nothing lost."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs import dense_wide
from adaquantfl.codecs.dense_table import entropy_bytes, histogram
from adaquantfl.codecs.frame import read_frame
from adaquantfl.codecs.kernels.rans_vectors import LANES, SCALE_BITS
from adaquantfl.quantizers.levels import level_dtype
from support import reference_decoder
from support.frames import framed, sealed, wide_body
from support.processors import WITHOUT, skip_if_impossible

Values = npt.NDArray[np.signedinteger]
CHUNK = 2**16


def levels_of(values: npt.ArrayLike, s: int) -> aq.Levels:
    return aq.Levels(np.asarray(values).astype(level_dtype(s)), np.float32(1.5), s)


def drawn(kind: str, d: int) -> aq.Levels:
    rng = np.random.default_rng(d)
    if kind == "pairs":
        return levels_of(rng.choice([-1, 0, 1], d, p=[0.1, 0.8, 0.1]), 1)
    if kind == "many pairs":
        return levels_of(rng.integers(-7, 8, d), 9)
    if kind == "int8":
        return levels_of(np.clip(np.rint(20 * rng.standard_normal(d)), -127, 127), 127)
    return levels_of(np.rint(300 * rng.laplace(size=d)).clip(-4000, 4000), 65_535)


def frame_of(levels: aq.Levels, pairs: bool, exponent: int = 16) -> bytes:
    return framed(levels, dense_wide.TAG, wide_body(levels, pairs, exponent))


KINDS = ["pairs", "many pairs", "int8", "int16"]


def pairs_in(kind: str) -> bool:
    return "pairs" in kind


# What goes in comes out.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 63, 64, 65, 127, 128, 129, 1000, CHUNK, CHUNK + 1, 2 * CHUNK + 77, 300_001])
def test_decoding_undoes_encoding(kind: str, d: int) -> None:
    levels = drawn(kind, d)
    assert aq.decode(frame_of(levels, pairs_in(kind))) == levels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 130, CHUNK + 131])
def test_a_decoder_written_from_the_specification_reads_it(kind: str, d: int) -> None:
    levels = drawn(kind, d)
    assert reference_decoder.decode(frame_of(levels, pairs_in(kind))).values == levels.values.tolist()


def test_one_level_alone_needs_no_words() -> None:
    for level, pairs in [(0, True), (7, True), (-3, False), (32_767, False), (-32_767, False)]:
        levels = levels_of(np.full(100_000, level), 32_767)
        frame = frame_of(levels, pairs, 20)
        assert aq.decode(frame) == levels
        assert len(frame) <= 532  # of which 256 are states, and 226 the frequencies of 225 pairs


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 32_767), st.booleans())
def test_any_levels_come_through(data: st.DataObject, s: int, pairs: bool) -> None:
    top = min(s, 7 if pairs else 8_191)
    some = data.draw(st.lists(st.integers(-top, top), min_size=1, max_size=300))
    levels = levels_of(some, s)
    assert aq.decode(frame_of(levels, pairs)) == levels


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_do_not_depend_on_the_number_of_threads(kind: str) -> None:
    levels, frames = drawn(kind, 5 * CHUNK), set()
    for threads in (1, 2, 3):
        aq.set_threads(threads)
        frames.add(frame_of(levels, pairs_in(kind)))
        assert aq.decode(frames.copy().pop()) == levels
    assert len(frames) == 1


@pytest.mark.parametrize("without", WITHOUT)
def test_processors_with_and_without_vectors_write_and_read_the_same_bytes(without: str, tmp_path: Path) -> None:
    skip_if_impossible(without)
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "import numpy as np, adaquantfl as aq\n"
        "from codecs_of_tests import KINDS, drawn, frame_of, pairs_in\n"
        "for kind in KINDS:\n"
        "    levels = drawn(kind, 70_013)\n"
        "    frame = open(f'{sys.argv[1]}/{kind}', 'rb').read()\n"
        "    assert frame_of(levels, pairs_in(kind)) == frame, kind\n"
        "    assert aq.decode(frame) == levels, kind\n"
    )
    (tmp_path / "codecs_of_tests.py").write_text(Path(__file__).read_text())
    for kind in KINDS:
        (tmp_path / kind).write_bytes(frame_of(drawn(kind, 70_013), pairs_in(kind)))
    environment = os.environ | WITHOUT[without] | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code, str(tmp_path), str(tmp_path), *sys.path], env=environment, check=True)


# When it is written, and its size.


@pytest.mark.parametrize(("bits", "pairs"), [(0.5, 1), (1, 1), (2, 1), (2.5, 1), (4, 0), (6, 0), (8, 0), (9.5, 0)])
def test_long_vectors_take_at_most_one_percent_more_than_their_entropy(bits: float, pairs: int) -> None:
    d, rng = 1_000_001, np.random.default_rng(7)
    if bits == 0.5:
        values = rng.choice([-1, 0, 1], d, p=[0.04, 0.92, 0.04])
    elif bits == 1:
        values = rng.choice([-1, 0, 1], d, p=[0.1, 0.8, 0.1])
    else:
        values = np.rint(2.0**bits / np.sqrt(2 * np.pi * np.e) * rng.standard_normal(d))
    levels = levels_of(values, 32_767)
    frame = aq.encode(levels, "dense")
    body = read_frame(frame).body
    assert frame[6] == dense_wide.TAG
    assert bool(body[0]) == bool(pairs)
    assert len(body) <= 1.01 * entropy_bytes(histogram(levels.values, levels.s))
    census = dense_wide.Census.of(levels.values, levels.s)
    how = dense_wide.plan(census, d)
    assert how
    assert how.size == pytest.approx(len(body), rel=0.002)
    assert aq.decode(frame) == levels


def test_few_elements_and_long_tails_have_the_narrow_body() -> None:
    rng = np.random.default_rng(3)
    assert aq.encode(drawn("int8", 5_000), "dense")[6] == 2
    assert aq.encode(levels_of(rng.choice([-1, 0, 1], 300_000, p=[0.001, 0.998, 0.001]), 1), "dense")[6] == 2
    assert aq.encode(levels_of(rng.integers(-40_000, 40_001, 300_000), 65_535), "dense")[6] == 2
    assert aq.encode(levels_of((5 * rng.standard_t(1, 300_000)).clip(-30_000, 30_000), 65_535), "dense")[6] == 2


def test_the_census_counts_levels_and_pairs(rng: np.random.Generator) -> None:
    for largest, s, d in [(1, 1, 10), (1, 9, 11), (7, 7, 200_003), (7, 100, 4_000), (0, 5, 3), (8, 8, 1_000)]:
        values = rng.integers(-largest, largest + 1, d).astype(level_dtype(s))
        values[0] = largest
        census = dense_wide.Census.of(values, s)
        assert np.array_equal(census.counts, np.bincount(values.astype(np.int64) + s, minlength=2 * s + 1))
        assert (census.pairs is None) == (largest > 7)
        if census.pairs is not None:
            padded = np.append(values, [0] * (d % 2)).astype(np.int64)
            t = census.largest
            each = (padded[::2] + t) * (2 * t + 1) + padded[1::2] + t
            assert np.array_equal(census.pairs, np.bincount(each, minlength=(2 * t + 1) ** 2))


def test_levels_at_an_odd_address_are_written(rng: np.random.Generator) -> None:
    values = rng.integers(-1, 2, 300_001).astype(np.int8)[1:]
    levels = aq.Levels(values, np.float32(1), 1)
    assert aq.encode(levels, "dense") == aq.encode(aq.Levels(values.copy(), np.float32(1), 1), "dense")


# Bodies that nobody wrote: refused with a sentence, or read as some levels within -s to s.


def read_or_refused(body: bytes, s: int, d: int) -> bool:
    frame = framed(levels_of(np.zeros(d), s), dense_wide.TAG, body)
    try:
        values = aq.decode(frame, d).values
    except aq.FrameError:
        return False
    assert len(values) == d
    assert np.abs(values.astype(np.int64)).max() <= s
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_cut_anywhere_is_refused(kind: str) -> None:
    levels = drawn(kind, 300)
    body = wide_body(levels, pairs_in(kind))
    assert read_or_refused(body, levels.s, 300)
    for length in range(len(body)):
        assert not read_or_refused(body[:length], levels.s, 300)
    for behind in (1, 2, 4, 256):
        assert not read_or_refused(body + bytes(behind), levels.s, 300)


@pytest.mark.parametrize("kind", ["pairs", "int8"])
def test_a_flipped_bit_never_does_more_than_be_refused(kind: str) -> None:
    levels = drawn(kind, 1001)
    body, read = wide_body(levels, pairs_in(kind)), 0
    for bit in range(0, 8 * len(body), 3):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        read += read_or_refused(bytes(flipped), levels.s, 1001)
    if kind == "pairs":  # in intervals, plain bits can change unnoticed
        assert read < 8  # c does not matter for one chunk


def test_random_streams_never_do_more_than_be_refused(rng: np.random.Generator) -> None:
    for kind in KINDS:
        for d in (1, 64, 1000, CHUNK + 1000):
            body = bytearray(wide_body(drawn(kind, d), pairs_in(kind)))
            states = rng.integers(2**15, 2**31, LANES, dtype=np.uint32).tobytes()
            body[-len(states) :] = states
            assert not read_or_refused(bytes(body), drawn(kind, d).s, d)
            middle = len(body) // 2
            body[middle:] = rng.bytes(len(body) - middle)
            assert not read_or_refused(bytes(body), drawn(kind, d).s, d)


def test_words_that_move_between_chunks_are_refused() -> None:
    levels = drawn("int16", 2 * CHUNK)
    body = bytearray(wide_body(levels, False))
    census = dense_wide.Census.of(levels.values, levels.s)
    table = dense_wide.SymbolTable.of_levels(census.counts)
    assert table
    place = 2 + len(table[0].to_bytes(levels.s))
    body[place], body[place + 3] = body[place] ^ 1, body[place + 3] ^ 1  # both lengths have three bytes
    assert not read_or_refused(bytes(body), levels.s, 2 * CHUNK)


STATES = struct.pack(f"<{LANES}I", *[2**15] * LANES)
ALL = bytes([0x80, 0x20])  # 4096


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "ends within its table"),
        (b"\0\x0f" + STATES, "2\\^15 symbols"),
        (b"\0\x15" + STATES, "2\\^21 symbols"),
        (b"\x02\x10" + STATES, "Pairs of levels up to 2 with s = 1"),
        (b"\x08\x10" + STATES, "Pairs of levels up to 8"),
        (b"\x01\x10\0\0\0\0\1\0\0\0\0\0" + STATES, "add up to 1 "),
        (b"\x01\x10\0\0\0\0" + ALL + b"\1\0\0\0\0" + STATES, "add up to 4,097"),
        (b"\x01\x10\0\0\0\0" + ALL + b"\0\0\0\0" + b"\1\0\0\0" + STATES, "should have 258 bytes"),
        (b"\x01\x10\0\0\0\0" + ALL + b"\0\0\0\0" + b"\0\1\0\0" + STATES, "padding"),
        (b"\0\x10\1\4\1" + ALL + b"\0" + STATES, "2\\^4 levels"),
        (b"\0\x10\2\1\1" + ALL + b"\0" + STATES, "with s = 1"),
        (b"\x01\x10" + ALL + bytes(12) + STATES, "chunk 0"),  # the odd element's partner is -1
        (b"\0\x10\1\0\1" + ALL + b"\0" + bytes(256), "chunk 0"),  # states of 0
        (b"\0\x10\1\0\1" + ALL + b"\0" + b"\xff" * 256, "chunk 0"),
        (b"\0\x10\1\0\1" + ALL + b"\0" + struct.pack("<I", 2**15 + 1) + STATES[4:], "chunk 0"),
    ],
)
def test_a_lying_head_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(aq.FrameError, match=why):
        aq.decode(framed(levels_of([0], 1), dense_wide.TAG, body))


def test_the_least_bodies_are_read() -> None:
    for body in (b"\x01\x10\0\0\0\0" + ALL + bytes(8) + STATES, b"\0\x10\1\0\1" + ALL + b"\0" + STATES):
        assert aq.decode(framed(levels_of([0], 1), dense_wide.TAG, body)).values.tolist() == [0]


def test_levels_beyond_16_bits_are_refused() -> None:
    skip = dense_wide.varint(65_535 + 32_768)  # the level 32,768
    body = b"\0\x10" + skip + b"\0\1" + ALL + b"\0"
    body += bytes(-len(body) % 4) + STATES
    with pytest.raises(aq.FrameError, match="32,767 is the limit"):
        aq.decode(framed(levels_of([0], 65_535), dense_wide.TAG, body))


def test_a_dimension_that_the_body_cannot_hold_is_refused_before_memory_is_taken() -> None:
    body = b"\0\x10\1\0\1" + ALL + b"\0" + STATES
    frame = bytearray(framed(levels_of([0], 1), dense_wide.TAG, body))
    frame[16:24] = struct.pack("<Q", 2**32)
    with pytest.raises(aq.FrameError, match="needs at least"):
        aq.decode(sealed(frame), 2**32)


def test_a_body_at_an_odd_address_is_read() -> None:
    levels = drawn("int8", 1000)
    assert aq.decode(memoryview(b"x" + frame_of(levels, False))[1:]) == levels
    assert aq.decode(bytearray(frame_of(levels, False))) == levels


def test_the_quotient_is_exact_for_every_frequency() -> None:
    """What the vectors compute in float32 (rans_vectors.py), for the states where it could go wrong."""
    for f in range(1, 4097):
        largest = (f << 31 - SCALE_BITS) - 1
        q = np.unique(np.concatenate([np.arange(0, 2**19, 997), 2 ** np.arange(19), 2 ** np.arange(1, 20) - 1]))
        x = np.concatenate([q * f, q * f + f - 1]).clip(0, largest).astype(np.int32)
        reciprocal = np.float32(1) / np.float32(f) * np.float32(1 - 2.0**-22)
        found = (x.astype(np.float32) * reciprocal).astype(np.int32)
        rest = x.astype(np.int64) - found.astype(np.int64) * f
        assert ((rest >= 0) & (rest < 2 * f)).all()


def test_levels_at_the_edge_of_the_wide_body_are_read_back() -> None:
    """Intervals are aligned: one that holds -32767 may begin at -32768, which a wide body cannot have."""
    values = np.random.default_rng(0).integers(-32767, -20000, 1_000_000).astype(np.int32)
    levels = aq.Levels(values, np.float32(1), 65535)
    for codec in ("dense", "auto"):
        assert np.array_equal(aq.decode(aq.encode(levels, codec), len(values)).values, values)
