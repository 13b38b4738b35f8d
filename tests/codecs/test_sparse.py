"""The sparse code loses nothing, is close to the entropy, and no bytes can upset its reader."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl import core
from adaquantfl.codecs.frame import TILE, read_frame
from support import reference_decoder
from support.frames import entropy_bytes, framed, levels_of, read_or_refused, some_vector


def encode(levels: aq.Levels) -> bytes:
    return aq.encode(levels, "sparse")


def body_of(levels: aq.Levels) -> bytes:
    return bytes(read_frame(encode(levels)).body)


def read(body: bytes, dimension: int, s: int) -> bool:
    return read_or_refused(framed(levels_of(np.zeros(dimension), s), core.SPARSE, body))


@pytest.mark.parametrize(
    ("kind", "s", "d"),
    [("gauss", 3, 1), ("heavy", 128, 64), ("ones", 65_535, TILE - 1), ("zeros", 1, TILE + 1), ("layers", 1, 200_003)],
)
def test_decode_undoes_encode_and_compress_gives_the_same_bytes(kind: str, s: int, d: int) -> None:
    x = some_vector(kind, d)
    for segments in (None, np.array([d // 3, d - d // 3]) if d > 3 else np.array([d])):
        levels = aq.quantize(x, s, 3, segments)
        frame = encode(levels)
        assert aq.decode(frame) == levels
        assert aq.compress(x, s, 3, "sparse", segments) == frame


@given(data=st.data(), d=st.integers(1, 3000), s=st.sampled_from([1, 2, 3, 4, 100, 65_535]))
def test_any_levels_come_through(data: st.DataObject, d: int, s: int) -> None:
    values = np.zeros(d, dtype=np.int64)
    places = data.draw(st.lists(st.integers(0, d - 1), max_size=60))
    values[places] = data.draw(st.lists(st.integers(-s, s), min_size=len(places), max_size=len(places)))
    frame = encode(levels_of(values, s))
    assert aq.decode(frame).values.tolist() == reference_decoder.decode(frame).values == values.tolist()


def test_a_zero_vector_takes_two_bytes() -> None:
    assert list(body_of(levels_of(np.zeros(1_000_000), 3))) == [20, 0]


def test_levels_at_the_edges_of_the_zero_test_are_not_missed() -> None:
    # Rows of 64 in which one element lies at, just below or just above a whole level, or is the smallest there is.
    for big in (1.0, 1 - 2.0**-24, 1 - 2.0**-22, 1 - 2.0**-21, 1 + 2.0**-22, 0.5, 1e-20, 1e-44):
        x = np.zeros(64 * 400, dtype=np.float32)
        x[::64] = big
        for s in (1, 20, 21, 400):
            assert aq.compress(x, s, s, "sparse") == encode(aq.quantize(x, s, s))


@pytest.mark.slow
@pytest.mark.parametrize("gap", [2**31, 2**32 - 1003])
def test_gaps_up_to_the_largest_dimension_come_through(gap: int) -> None:
    # A dense start makes the mean small, so that the long gap takes the escape; its length is the worst there is.
    values = np.zeros(2**32, dtype=np.int8)
    values[:1000], values[1000 + gap] = 1, -1
    frame = encode(aq.Levels(values, np.float32(1), 1))
    del values
    found = aq.decode(frame, 2**32).values
    assert np.flatnonzero(found).tolist() == [*range(1000), 1000 + gap]
    assert found[1000 + gap] == -1


@pytest.mark.parametrize(("kind", "density"), [("gauss", 0.0005), ("gauss", 0.1), ("heavy", 0.03)])
def test_the_body_is_close_to_the_entropy(kind: str, density: float) -> None:
    x = some_vector(kind, 1_000_003)
    s = round(density * float(np.linalg.norm(x)) / float(np.abs(x).mean()))
    levels = aq.quantize(x, s, key=7)
    assert len(body_of(levels)) <= (1.01 if density < 0.01 else 1.03) * entropy_bytes(levels.values)


EXAMPLE = bytes.fromhex("10 04 c6 24 70 bc 89 02")


def test_the_example_of_the_specification_holds() -> None:
    values = np.zeros(100)
    values[[3, 40, 41, 99]] = [1, -5, 2, -1]
    assert body_of(levels_of(values, 5)) == EXAMPLE


# Bodies that nobody should send


def some_levels(d: int = 3 * TILE + 99) -> aq.Levels:
    """Three chunks and every kind of code: escapes, levels above 3."""
    values, rng = np.zeros(d), np.random.default_rng(3)
    values[rng.integers(0, d // 2, 15_000)] = rng.integers(-9, 10, 15_000)
    values[[d // 2, d - 1]] = [9, -9]
    return levels_of(values, 9)


def test_a_body_cut_anywhere_is_refused() -> None:
    values = np.zeros(3 * TILE)
    values[[0, 5, 6, 7, TILE, TILE + 3, 2 * TILE + 60_000]] = [1, -9, 8, 1, 3, -2, -1]
    for levels in (levels_of(values, 9), some_levels()):
        body = body_of(levels)
        lengths = range(len(body)) if len(body) < 1000 else [*range(40), *range(40, len(body), 997), len(body) - 1]
        assert not any(read(body[:n], levels.dimension, 9) for n in lengths)
        assert not read(body + b"\0", levels.dimension, 9)
        assert read(body, levels.dimension, 9)


def test_flipped_bits_are_refused_or_read_as_other_levels(rng: np.random.Generator) -> None:
    levels = some_levels()
    body = body_of(levels)
    for place in [*range(8 * 12), *rng.integers(0, 8 * len(body), 100).tolist()]:
        other = bytearray(body)
        other[place >> 3] ^= 1 << (place & 7)
        read(bytes(other), levels.dimension, 9)


@given(
    body=st.binary(max_size=200),
    first=st.integers(16, 32),
    dimension=st.sampled_from([1, 7, 1000, 65_537]),
    s=st.sampled_from([1, 3, 65_535]),
)
def test_random_bytes_are_refused_or_read(body: bytes, first: int, dimension: int, s: int) -> None:
    for start in (b"", bytes([first]), bytes([first, min(len(body), 127)])):  # the last is a plausible count
        read(start + body, dimension, s)


TWO = bytes([16, 1, 1])  # two chunks with one non-zero level each
LIES: list[tuple[bytes, str, int, int]] = [  # body, the rule that it breaks, dimension, s
    (b"", "SHIFT", 100, 5),
    (b"\x0f" + EXAMPLE[1:], "SHIFT", 100, 5),
    (b"\x21" + EXAMPLE[1:], "SHIFT", 100, 5),
    (EXAMPLE[:1], "DIRECTORY", 100, 5),
    (bytes([16, 132]), "DIRECTORY", 100, 5),  # the varint goes on behind the end
    (bytes([16, 132, 0]) + EXAMPLE[2:], "DIRECTORY_NUMBER", 100, 5),  # 4, but not in its shortest form
    (bytes([16, 255, 255, 255, 255, 255, 1]), "DIRECTORY_NUMBER", 100, 5),
    (TWO + bytes([200, 1, 0, 0, 0]), "DIRECTORY_SHORT", TILE + 5, 5),
    (bytes([16, 0, 0]), "DIRECTORY_LONG", 100, 5),
    (bytes([16, 101]) + bytes(100), "DIRECTORY_COUNT", 100, 5),
    (bytes([16, 25]) + EXAMPLE[2:], "DIRECTORY_COUNT", 100, 5),
    (EXAMPLE[:-1], "CHUNK", 100, 5),
    (EXAMPLE + b"\0", "CHUNK", 100, 5),
    (EXAMPLE[:-1] + b"\x82", "CHUNK", 100, 5),  # unused bits
    (bytes([16, 2, 7, 0]), "CHUNK", 10, 5),  # gap 9, and then one more
    (EXAMPLE, "CHUNK", 100, 4),
    (EXAMPLE, "CHUNK", 100, 1),
    (bytes([16, 1, 0b10100]), "CHUNK", 1, 5),  # n2 = 2 of 1
    (bytes([16, 1, 255, 255, 255, 255, 255, 255, 255]), "CHUNK", 1, 5),
]


@pytest.mark.parametrize(("body", "rule", "dimension", "s"), LIES)
def test_a_lie_is_refused_with_the_rule_that_it_breaks(body: bytes, rule: str, dimension: int, s: int) -> None:
    frame = framed(levels_of(np.zeros(dimension), s), core.SPARSE, body)
    with pytest.raises(aq.FrameError, match=rf"the rule {rule}\w* of"):
        aq.decode(frame)
    with pytest.raises(ValueError, match=r"\w"):
        reference_decoder.decode(frame)


def test_a_directory_too_large_for_its_body_is_refused_before_memory_is_taken() -> None:
    values = np.broadcast_to(np.int8(0), 2**32)
    header = aq.Levels(values, np.float32(1), 1)
    with pytest.raises(aq.FrameError, match="rule DIRECTORY of"):
        aq.decode(framed(header, core.SPARSE, bytes([16]) + bytes(1000)), 2**32)
