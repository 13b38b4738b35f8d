"""The dense code is within 1 % of the levels' entropy, loses nothing, and refuses what it did not write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs import dense, dense_wide
from adaquantfl.codecs.dense_table import LevelTable, histogram
from adaquantfl.codecs.frame import TILE, UNIFORM, Header, read_frame, seal, write_frame
from adaquantfl.quantizers.levels import level_dtype
from adaquantfl.quantizers.segments import Segments
from adaquantfl.quantizers.streams import split_key
from adaquantfl.quantizers.uniform import Prepared
from support import reference_decoder

Values = npt.NDArray[np.signedinteger]
Draw = Callable[[np.random.Generator, int], npt.NDArray[np.float64]]

# The example of the dense body in docs/wire-format.md: s = 2, levels 1 0 0 -1 0 2.
EXAMPLE = bytes.fromhex(
    "01 00 01 ab 05  00 01 01 ab 15  00 00 01 aa 05  00"
    "36 16 b8 7f 04 00 00 00  6c a5 f8 01 09 00 00 00  cb 02 f4 7f 01 00 00 00  00 02 a0 ff 02 00 00 00"
)

SHAPES: dict[str, Draw] = {
    "tenth": lambda rng, d: rng.choice([-1.0, 0.0, 1.0], d, p=[0.05, 0.9, 0.05]),
    "ternary": lambda rng, d: rng.choice([-1.0, 0.0, 1.0], d, p=[0.2, 0.6, 0.2]),
    "gauss 0.5": lambda rng, d: 0.5 * rng.standard_normal(d),
    "gauss 3": lambda rng, d: 3 * rng.standard_normal(d),
    "gauss 51": lambda rng, d: 51 * rng.standard_normal(d),
    "gauss 3000": lambda rng, d: 3000 * rng.standard_normal(d),
    "laplace 1": lambda rng, d: rng.laplace(size=d),
    "laplace 100": lambda rng, d: 100 * rng.laplace(size=d),
    "uniform 7": lambda rng, d: rng.integers(-7, 8, d).astype(float),
    "uniform 40000": lambda rng, d: rng.integers(-40_000, 40_001, d).astype(float),
    "cauchy": lambda rng, d: 5 * rng.standard_t(1, d),
    "student 2": lambda rng, d: 100 * rng.standard_t(2, d),
    "one-sided": lambda rng, d: rng.exponential(30, d),
    "zeros and gauss": lambda rng, d: np.where(rng.random(d) < 0.3, 0, 200 * rng.standard_normal(d)),
    "every seventh": lambda rng, d: 7.0 * rng.integers(-100, 101, d),
}


def levels_of(values: npt.ArrayLike, s: int) -> aq.Levels:
    clipped = np.clip(np.rint(np.asarray(values)), -s, s).astype(level_dtype(s))
    return aq.Levels(clipped, np.float32(1.5), s)


def drawn(shape: str, d: int, s: int = 65_535) -> aq.Levels:
    return levels_of(SHAPES[shape](np.random.default_rng(5), d), s)


def decoded(frame: bytes) -> Values:
    parsed = read_frame(frame)
    values = np.empty(parsed.header.dimension, dtype=level_dtype(parsed.header.s))
    dense.open_body(parsed).decode(values)
    return values


def framed(body: bytes, s: int, d: int) -> bytes:
    frame, target = write_frame(Header(UNIFORM, dense.TAG, s, d, None, np.ones(1, dtype=np.float32)), len(body))
    target[:] = np.frombuffer(body, dtype=np.uint8)
    return seal(frame)


def body_of(levels: aq.Levels) -> bytes:
    return read_frame(dense.encode(levels)).body.tobytes()


# What goes in comes out.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 1000, 65_535, 65_536, 65_537, 200_003])
def test_decoding_undoes_encoding(shape: str, d: int) -> None:
    levels = drawn(shape, d)
    assert np.array_equal(decoded(dense.encode(levels)), levels.values)


@pytest.mark.parametrize("s", [1, 2, 3, 127, 128, 1000, 32_767, 32_768, 65_535])
@pytest.mark.parametrize("d", [1, 7, 70_001])
def test_extreme_levels_come_through(s: int, d: int, rng: np.random.Generator) -> None:
    alternating = np.where(np.arange(d) % 2, -s, s)
    for values in (np.zeros(d), np.full(d, s), np.full(d, -s), alternating, rng.integers(-s, s + 1, d)):
        levels = levels_of(values, s)
        assert np.array_equal(decoded(dense.encode(levels)), levels.values)


def test_more_distinct_levels_than_slots_come_through(rng: np.random.Generator) -> None:
    levels = levels_of(rng.choice(rng.integers(-65_535, 65_536, 20_000), 300_000), 65_535)
    assert np.array_equal(decoded(dense.encode(levels)), levels.values)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), s=st.integers(1, 65_535))
def test_any_levels_come_through(data: st.DataObject, s: int) -> None:
    some = st.lists(st.one_of(st.integers(-s, s), st.sampled_from([-s, -1, 0, 1, s])), min_size=1, max_size=300)
    levels = levels_of(data.draw(some), s)
    assert np.array_equal(decoded(dense.encode(levels)), levels.values)


def test_a_vector_of_equal_levels_takes_only_the_states() -> None:
    assert len(body_of(levels_of(np.full(65_536, 3), 7))) < 48


def test_integers_of_any_width_give_the_same_bytes() -> None:
    levels = drawn("gauss 3", 10_000, s=100)
    wider = aq.Levels(levels.values.astype(np.int64), levels.scale, levels.s)
    assert dense.encode(wider) == dense.encode(levels)


@pytest.mark.parametrize("shape", ["ternary", "gauss 51", "cauchy", "uniform 40000"])
def test_a_decoder_written_from_the_specification_reads_it(shape: str) -> None:
    levels = drawn(shape, 70_001)
    assert reference_decoder.decode(dense.encode(levels)).values == levels.values.tolist()


def test_the_example_of_the_specification_stays_as_it_is() -> None:
    levels = levels_of([1, 0, 0, -1, 0, 2], 2)
    assert body_of(levels) == EXAMPLE
    assert reference_decoder.decode(framed(EXAMPLE, 2, 6)).values == levels.values.tolist()
    assert np.array_equal(decoded(framed(EXAMPLE, 2, 6)), levels.values)


# Quantizing, threads, sums.


@pytest.mark.parametrize("s", [1, 30, 3000, 65_535])
@pytest.mark.parametrize("segments", [None, [1, 70_000, 80_002]])
def test_compress_writes_the_bytes_of_encode(s: int, segments: list[int] | None, rng: np.random.Generator) -> None:
    x = rng.standard_normal(150_003).astype(np.float32)
    ready = Prepared.of(x, s, segments)
    lengths = None if segments is None else ready.segments.lengths
    frame = dense.compress(ready, s, *split_key(9), lengths)
    assert frame == dense.encode(aq.quantize(x, s, 9, segments))


def test_the_bytes_do_not_depend_on_the_number_of_threads() -> None:
    levels = drawn("laplace 100", 600_000)
    frames, sums = set(), set()
    for threads in (1, 2, 5):
        aq.set_threads(threads)
        frames.add(dense.encode(levels))
        sums.add(decoded(dense.encode(levels)).tobytes())
    assert len(frames) == len(sums) == 1


@pytest.mark.parametrize("shape", ["ternary", "gauss 51", "uniform 40000"])
def test_tiles_add_up_in_any_ranges(shape: str, rng: np.random.Generator) -> None:
    d = 5 * TILE + 123
    levels = drawn(shape, d)
    offsets = Segments.of([100, TILE, d - 100 - TILE], d).offsets
    steps = np.array([0.5, -2.0, 0.125], dtype=np.float32)
    body = dense.open_body(read_frame(dense.encode(levels)))
    before = rng.standard_normal(d).astype(np.float32)
    expected = before + np.repeat(steps, np.diff(offsets)) * levels.values.astype(np.float32)
    total = before.copy()
    for first, last in [(4, 6), (0, 1), (1, 4)]:
        body.add(steps, offsets, total, first, last)
    assert np.array_equal(total, expected)


def test_an_open_body_takes_the_smallest_integers() -> None:
    frame = read_frame(dense.encode(levels_of(np.arange(1000) % 100, 65_535)))
    assert dense.open_body(frame).nbytes == 1000


def test_the_histogram_counts_every_level(rng: np.random.Generator) -> None:
    for s, d in [(1, 10), (100, 200_003), (65_535, 10), (65_535, 300_001)]:
        values = rng.integers(-s, s + 1, d).astype(level_dtype(s))
        assert np.array_equal(histogram(values, s), np.bincount(values.astype(np.int64) + s, minlength=2 * s + 1))


# Size.


@pytest.mark.parametrize("shape", SHAPES)
def test_the_body_is_within_one_percent_of_the_entropy(shape: str) -> None:
    d = 1_000_003
    levels = drawn(shape, d)
    counts = histogram(levels.values, levels.s)
    share = counts[counts > 0] / d
    entropy = -float((share * np.log2(share)).sum()) * d / 8
    size = len(body_of(levels))
    assert size <= 1.01 * entropy
    assert dense.plan(dense_wide.Census(counts), d).size == pytest.approx(size, rel=0.002)


def test_a_quantized_model_update_takes_its_entropy(rng: np.random.Generator) -> None:
    levels = aq.quantize(rng.standard_normal(1_663_370).astype(np.float32), 65_535, 1)
    counts = histogram(levels.values, levels.s)
    share = counts[counts > 0] / levels.dimension
    entropy = -float((share * np.log2(share)).sum()) * levels.dimension / 8
    assert len(body_of(levels)) <= 1.004 * entropy


# Bodies that nobody wrote: refused with a sentence, or read as some levels within -s to s.


def read_or_refused(body: bytes, s: int, d: int) -> bool:
    frame = framed(body, s, d)
    try:
        values = decoded(frame)
    except aq.FrameError:
        return False
    assert len(values) == d
    assert np.abs(values.astype(np.int64)).max() <= s
    return True


@pytest.mark.parametrize("shape", ["ternary", "gauss 51", "cauchy"])
def test_a_body_cut_anywhere_is_refused(shape: str) -> None:
    d = 500
    body = body_of(drawn(shape, d))
    assert read_or_refused(body, 65_535, d)
    for length in range(len(body)):
        assert not read_or_refused(body[:length], 65_535, d)
    assert not read_or_refused(body + b"\0", 65_535, d)
    assert not read_or_refused(body + bytes(4), 65_535, d)


@pytest.mark.parametrize("shape", ["ternary", "gauss 3000"])
def test_a_flipped_bit_never_does_more_than_be_refused(shape: str) -> None:
    d = 300
    body = body_of(drawn(shape, d))
    read = 0
    for bit in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        read += read_or_refused(bytes(flipped), 65_535, d)
    if shape == "ternary":  # without plain bits only the levels' names in the table can change unnoticed
        assert read < 32


def test_random_bytes_never_do_more_than_be_refused(rng: np.random.Generator) -> None:
    for _ in range(300):
        s, d = int(rng.choice([1, 10, 65_535])), int(rng.choice([1, 5, 1000, 70_000]))
        read_or_refused(rng.bytes(int(rng.integers(0, 400))), s, d)


def test_random_streams_behind_a_valid_table_never_do_more_than_be_refused(rng: np.random.Generator) -> None:
    for words in (0, 1, 3, 50, 20_000):
        head = bytes([1, 0, 1, 0xAB, 5, 0, 1, 1, 0xAB, 0x15, 0, 0, 1, 0xAA, 5]) + dense.varint(words)
        states = (rng.integers(2**31, 2**63, 4, dtype=np.uint64)).tobytes()
        for d in (1, 3, 1000, 65_536):
            assert not read_or_refused(head + bytes(-len(head) % 4) + states + rng.bytes(4 * words), 2, d)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=120), st.integers(1, 300), st.integers(1, 100))
def test_any_bytes_are_read_or_refused(body: bytes, s: int, d: int) -> None:
    read_or_refused(body, s, d)


REST = EXAMPLE[16:]  # four states, no words


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("01 00 01 ab 05  00 01 01 ab 15  00 00 01 ab 05  00", "add up"),  # 683 + 2731 + 683
        ("01 00 01 ab 05  00 01 01 ab 15  00 00 01 00 00 00", "zero"),
        ("00 00 03 80 10 80 10 00  00 00 00 00", "zero"),  # behind 2048 + 2048
        ("01 00 00 ab 05  00 01 01 ab 15  00 00 01 aa 05  00", "0 intervals"),
        ("01 00 01 ab 05  00 01 01 ab 15  01 00 01 aa 05  00", "with s = 2"),  # level 3
        ("01 11 01 ab 05  00 01 01 ab 15  00 00 01 aa 05  00", "2\\^17"),
        ("01 00 ff 7f 05  00 01 01 ab 15  00 00 01 aa 05  00", "16,383 intervals"),
        ("81 00 00 01 ab 05  00 01 01 ab 15  00 00 01 aa 05  00 00 00 00", "as few as it needs"),
        ("ff ff ff 01 00 01 ab 05  00 01 01 ab 15  00 00 01 aa", "as few as it needs"),
        ("01 00 01 ab 05  00 01 01 ab 15  00 00 01 aa 05  01", "tiles should have 36 bytes"),
        ("00 00 04 80 08 80 08 80 08 80 08  00", "stream of tile 0"),  # another table: the states end elsewhere
        ("00 00 04 80 08 80 08 80 08 80 08  80 00 00 00 00", "as few as it needs"),
        ("00 02 01 80 20  00  00 01", "padding"),
        ("01 00 01 ab 05  00 01 01 ab 15  00 00 01 a9 05  00", "2\\^54"),  # 4095: the table goes on into the states
    ],
)
def test_a_lying_table_or_directory_is_refused(head: str, why: str) -> None:
    with pytest.raises(aq.FrameError, match=why):
        decoded(framed(bytes.fromhex(head) + REST, 2, 6))


def test_a_directory_that_moves_words_between_tiles_is_refused() -> None:
    d = 2 * TILE
    levels = drawn("ternary", d)
    table, _ = LevelTable.of(histogram(levels.values, levels.s))
    head = table.to_bytes(levels.s)
    body = bytearray(body_of(levels))
    # Both lengths are written in two bytes; a word less here is a word more there.
    first, second = (body[len(head) + 2 * i] for i in range(2))
    body[len(head)], body[len(head) + 2] = first ^ 1, second ^ 1
    assert not read_or_refused(bytes(body), levels.s, d)


@pytest.mark.parametrize("state", [0, 1, 2**31 - 1, 2**63, 2**64 - 1])
def test_a_state_out_of_range_is_refused(state: int) -> None:
    body = EXAMPLE[:16] + state.to_bytes(8, "little") + EXAMPLE[24:]
    with pytest.raises(aq.FrameError, match="stream of tile 0"):
        decoded(framed(body, 2, 6))


def test_a_dimension_that_the_body_cannot_hold_is_refused_before_memory_is_taken() -> None:
    frame = read_frame(framed(EXAMPLE, 2, 2**32))
    with pytest.raises(aq.FrameError, match="needs at least"):
        dense.open_body(frame)


def test_a_body_at_an_odd_address_is_read() -> None:
    levels = drawn("gauss 3", 1000)
    shifted = memoryview(b"x" + dense.encode(levels))[1:]
    values = np.empty(1000, dtype=np.int32)
    dense.open_body(read_frame(shifted)).decode(values)
    assert np.array_equal(values, levels.values)
