"""The sparse code loses nothing, is close to the entropy, and no bytes can upset its reader."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl import core
from adaquantfl.codecs.frame import TILE, UNIFORM, Frame, Header, framed, read_frame
from adaquantfl.quantizers.levels import level_dtype
from support import reference_decoder

Ints = npt.NDArray[np.signedinteger]


def make_levels(values: npt.ArrayLike, s: int) -> aq.Levels:
    return aq.Levels(np.asarray(values).astype(level_dtype(s)), np.float32(1.5), s)


def body_of(levels: aq.Levels) -> npt.NDArray[np.uint8]:
    return np.frombuffer(read_frame(encode(levels)).body, dtype=np.uint8)


def encode(levels: aq.Levels) -> bytes:
    return aq.encode(levels, "sparse")


def compress(x: npt.NDArray[np.float32], s: int, key: int, segments: npt.NDArray[np.int64] | None = None) -> bytes:
    return aq.compress(x, s, key, "sparse", segments)


def decode(frame: bytes) -> Ints:
    return aq.decode(frame).values


def frame_with(body: bytes, dimension: int, s: int) -> Frame:
    """A frame whose checksum is right, so that the body's reader is what is tested."""
    header = Header(UNIFORM, core.SPARSE, s, dimension, None, np.ones(1, dtype=np.float32))
    return read_frame(framed(header, body))


def entropy_bytes(values: Ints) -> float:
    _, counts = np.unique(values, return_counts=True)
    p = counts / len(values)
    return float(-(p * np.log2(p)).sum() * len(values) / 8)


def at_density(x: npt.NDArray[np.float32], density: float) -> aq.Levels:
    s = round(density * float(np.linalg.norm(x)) / float(np.abs(x).mean()))
    return aq.quantize(x, min(65535, max(1, s)), key=7)


def draw(kind: str, d: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    made = {
        "gauss": lambda: rng.standard_normal(d),
        "laplace": lambda: rng.laplace(size=d),
        "heavy": lambda: rng.standard_t(1.5, d),
        "ones": lambda: np.ones(d),
        "zeros": lambda: np.zeros(d),
        "layers": lambda: rng.standard_normal(d) * np.exp(6 * np.sin(np.arange(d) / (d / 9 + 1))),
    }
    return made[kind]().astype(np.float32)


# Nothing is lost


@pytest.mark.parametrize(("kind", "s"), [("gauss", 3), ("heavy", 128), ("ones", 65_535), ("zeros", 1), ("layers", 1)])
@pytest.mark.parametrize("d", [1, 64, TILE - 1, TILE + 1, 200_003])
def test_decode_undoes_encode_and_compress_gives_the_same_bytes(
    d: int, s: int, kind: str, rng: np.random.Generator
) -> None:
    x = draw(kind, d, rng)
    for segments in (None, np.array([d // 3, d - d // 3]) if d > 3 else np.array([d])):
        levels = aq.quantize(x, s, 3, segments)
        frame = encode(levels)
        assert np.array_equal(decode(frame), levels.values)
        assert compress(x, s, 3, segments) == frame


@given(data=st.data(), d=st.integers(1, 3000), s=st.sampled_from([1, 2, 3, 4, 100, 65_535]))
@settings(deadline=None)
def test_any_levels_come_through(data: st.DataObject, d: int, s: int) -> None:
    values = np.zeros(d, dtype=np.int64)
    places = data.draw(st.lists(st.integers(0, d - 1), max_size=60))
    values[places] = data.draw(st.lists(st.integers(-s, s), min_size=len(places), max_size=len(places)))
    levels = make_levels(values, s)
    frame = encode(levels)
    assert np.array_equal(decode(frame), levels.values)
    assert reference_decoder.decode(frame).values == values.tolist()


def test_a_zero_vector_takes_two_bytes() -> None:
    assert body_of(make_levels(np.zeros(1_000_000), 3)).tolist() == [20, 0]


def test_levels_at_the_edges_of_the_zero_test_are_not_missed() -> None:
    # Rows of 64 in which one element lies at, just below or just above a whole level, or is the smallest there is.
    for big in (1.0, 1 - 2.0**-24, 1 - 2.0**-22, 1 - 2.0**-21, 1 + 2.0**-22, 0.5, 1e-20, 1e-44):
        x = np.zeros(64 * 400, dtype=np.float32)
        x[::64] = big
        for s in (1, 20, 21, 400):
            for key in range(3):
                assert compress(x, s, key) == encode(aq.quantize(x, s, key))


def test_the_bytes_do_not_depend_on_the_number_of_threads(rng: np.random.Generator) -> None:
    x = draw("layers", 1_300_000, rng)
    for s in (2, 200):
        levels = aq.quantize(x, s, 1)
        frames = set()
        for threads in (1, 2, 5):
            aq.set_threads(threads)
            frames |= {compress(x, s, 1), encode(levels)}
            assert np.array_equal(decode(encode(levels)), levels.values)
        assert len(frames) == 1


@pytest.mark.slow
@pytest.mark.parametrize("gap", [2**31 - 1, 2**31, 2**32 - 1003])
def test_gaps_up_to_the_largest_dimension_come_through(gap: int) -> None:
    # A dense start makes the mean small, so that the long gap takes the escape; its length is the worst there is.
    values = np.zeros(2**32, dtype=np.int8)
    values[:1000], values[1000 + gap] = 1, -1
    index, level = core.nonzeros(*read(encode(aq.Levels(values, np.float32(1), 1))))
    assert index.tolist() == [*range(1000), 1000 + gap]
    assert level.tolist() == [*[1] * 1000, -1]


def read(frame: bytes) -> tuple[bytes, object]:
    return frame, read_frame(frame).facts


# Adding up


@pytest.mark.parametrize("s", [1, 6, 900])
def test_sums_are_those_of_the_levels(s: int, rng: np.random.Generator) -> None:
    d = 5 * TILE + 1234
    segments = np.array([10, 3 * TILE, 1, 2 * TILE, 1223], dtype=np.int64)
    levels = aq.quantize(draw("heavy", d, rng), s, 2, segments)
    total = aq.Accumulator(d)
    total.add(encode(levels), 0.3)
    steps = (0.3 * levels.scales.astype(np.float64) / s).astype(np.float32)
    assert np.array_equal(total.result(), np.repeat(steps, segments) * levels.values.astype(np.float32))


# Size


@pytest.mark.parametrize(
    ("kind", "density"), [("gauss", 0.0005), ("gauss", 0.1), ("laplace", 0.009), ("heavy", 0.002), ("heavy", 0.03)]
)
def test_the_body_is_close_to_the_entropy(kind: str, density: float) -> None:
    levels = at_density(draw(kind, 1_663_370, np.random.default_rng(5)), density)
    size, entropy = len(body_of(levels)), entropy_bytes(levels.values)
    assert size <= (1.01 if density < 0.01 else 1.03) * entropy


def test_an_outlier_costs_bits_by_its_logarithm() -> None:
    values = np.zeros(1_000_000, dtype=np.int64)
    values[::2000] = 1
    plain = len(body_of(make_levels(values, 65_535)))
    values[500_000] = 65_535
    assert len(body_of(make_levels(values, 65_535))) - plain <= 9


@pytest.mark.parametrize(
    ("kind", "density"), [("gauss", 0.0005), ("gauss", 0.1), ("heavy", 0.009), ("zeros", 0.1), ("ones", 0.009)]
)
def test_the_estimate_is_within_one_percent(kind: str, density: float) -> None:
    x = draw(kind, 1_000_003, np.random.default_rng(8))
    levels = at_density(x, density) if x.any() else aq.quantize(x, 3, 0)
    assert core.sizes(levels.values, levels.s)[core.SPARSE] == pytest.approx(len(body_of(levels)), rel=0.01)


# The specification


EXAMPLE = "10 04 c6 24 70 bc 89 02"


def test_the_example_of_the_specification_holds() -> None:
    values = np.zeros(100, dtype=np.int64)
    values[[3, 40, 41, 99]] = [1, -5, 2, -1]
    levels = make_levels(values, 5)
    assert body_of(levels).tobytes() == bytes.fromhex(EXAMPLE)
    assert reference_decoder.decode(encode(levels)).values == values.tolist()


# Bodies that nobody should send


def refuse_or_read(body: bytes, dimension: int, s: int) -> bool:
    """True where the body is read; anything but a FrameError or levels within s fails the test."""
    frame = frame_with(body, dimension, s)
    try:
        index, level = core.nonzeros(frame.data, frame.facts)
    except aq.FrameError:
        return False
    assert len(index) <= min(dimension, 4 * len(body))
    assert (np.diff(index.astype(np.int64)) > 0).all()
    assert (index < dimension).all()
    assert (np.abs(level) <= s).all()
    assert (level != 0).all()
    return True


def some_levels(d: int = 3 * TILE + 99) -> aq.Levels:
    """Three chunks and every kind of code: escapes, levels above 3."""
    values = np.zeros(d, dtype=np.int64)
    rng = np.random.default_rng(3)
    values[rng.integers(0, d // 2, 15_000)] = rng.integers(-9, 10, 15_000)
    values[[d // 2, d - 1]] = [9, -9]
    return make_levels(values, 9)


def test_a_body_cut_anywhere_is_refused() -> None:
    values = np.zeros(3 * TILE, dtype=np.int64)
    values[[0, 5, 6, 7, TILE, TILE + 3, 2 * TILE + 60_000]] = [1, -9, 8, 1, 3, -2, -1]
    for levels in (make_levels(values, 9), some_levels()):
        body = body_of(levels).tobytes()
        lengths = range(len(body)) if len(body) < 1000 else [*range(40), *range(40, len(body), 97), len(body) - 1]
        assert not any(refuse_or_read(body[:n], levels.dimension, 9) for n in lengths)
        assert not refuse_or_read(body + b"\0", levels.dimension, 9)
        assert refuse_or_read(body, levels.dimension, 9)


def test_flipped_bits_are_refused_or_read_as_other_levels() -> None:
    levels = some_levels()
    body = body_of(levels)
    rng = np.random.default_rng(4)
    for place in [*range(8 * 12), *rng.integers(0, 8 * len(body), 300)]:
        other = body.copy()
        other[place >> 3] ^= np.uint8(1 << (place & 7))
        refuse_or_read(other.tobytes(), levels.dimension, 9)
    assert refuse_or_read(body.tobytes(), levels.dimension, 9)


@given(
    body=st.binary(max_size=200),
    first=st.integers(16, 32),
    dimension=st.sampled_from([1, 7, 1000, 65_537, 10**6, 2**32]),
    s=st.sampled_from([1, 2, 3, 65_535]),
)
@settings(deadline=None, max_examples=300)
def test_random_bytes_are_refused_or_read(body: bytes, first: int, dimension: int, s: int) -> None:
    refuse_or_read(body, dimension, s)
    refuse_or_read(bytes([first]) + body, dimension, s)
    refuse_or_read(bytes([first, min(len(body), 127)]) + body, dimension, s)  # a plausible count


def test_lies_are_refused_with_a_sentence_that_says_which() -> None:
    example = bytes.fromhex(EXAMPLE)
    two = bytes([16, 1, 1])  # two chunks with one non-zero level each

    def refused(body: bytes, why: str, dimension: int = 100, s: int = 5) -> None:
        frame = frame_with(body, dimension, s)
        with pytest.raises(aq.FrameError, match=why):
            core.nonzeros(frame.data, frame.facts)
        with pytest.raises(ValueError, match=r"\w"):
            reference_decoder.decode(bytes(frame.written()))

    refused(b"", "starts with .* this one with -1")
    refused(b"\x0f" + example[1:], "16 to 32; this one with 15")
    refused(b"\x21" + example[1:], "16 to 32; this one with 33")
    refused(example[:1], "does not fit")
    refused(bytes([16]) + bytes(1000), "65,536 chunks does not fit", dimension=2**32)
    refused(bytes([16, 132]), "directory")  # the varint goes on behind the end
    refused(bytes([16, 132, 0]) + example[2:], "directory")  # 4, but not in its shortest form
    refused(bytes([16, 255, 255, 255, 255, 255, 1]), "directory")
    refused(two + bytes([200, 1, 0, 0, 0]), "more bytes than the 3", dimension=TILE + 5)
    refused(bytes([16, 0, 0]), "All levels are 0, but 1 bytes")
    refused(bytes([16, 101]) + bytes(100), "cannot hold 101 non-zero levels")
    refused(bytes([16, 25]) + example[2:], "cannot hold 25 non-zero levels: it has 100 elements and 6 bytes")
    refused(example[:-1], "run past its end")
    refused(example + b"\0", "left over")
    refused(example[:-1] + b"\x82", "unused bits")
    refused(bytes([16, 2, 7, 0]), "past its last element", dimension=10)  # gap 9, and then one more
    refused(example, "above s", s=4)
    refused(example, "above s", s=2)
    refused(example, "above s", s=1)
    refused(bytes([16, 1, 0b10100]), "more elements as large", dimension=1)  # n2 = 2 of 1
    refused(bytes([16, 1, 255, 255, 255, 255, 255, 255, 255]), "past its last element", dimension=1)
