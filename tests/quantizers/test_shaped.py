"""shaped: factors of rows and columns where they pay at equal bytes, `mixed` elsewhere; a frame is enough to decode."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.factors import pack_factors, read_factors
from adaquantfl.codecs.varints import varint
from adaquantfl.quantizers.choice import levels_for_error
from adaquantfl.quantizers.factors import Axis, Matrix
from adaquantfl.quantizers.registry import find
from adaquantfl.quantizers.shaped import Shaped
from adaquantfl.rules import CostAware
from adaquantfl.threads import set_threads
from support.rounds import reply_of

SHAPES = ((96, 400), (96,), (20, 96))
LENGTHS = [math.prod(shape) for shape in SHAPES]


def update(rng: np.random.Generator, spread: float = 0.8) -> np.ndarray:
    """Tensors whose rows and columns have sizes that differ by about e^spread."""
    parts = []
    for shape in SHAPES:
        tensor = rng.standard_normal(shape)
        for axis, size in enumerate(shape if len(shape) > 1 else ()):
            lines = np.exp(spread * rng.standard_normal(size))
            tensor *= lines.reshape([-1 if place == axis else 1 for place in range(len(shape))])
        parts.append(tensor.ravel())
    return np.concatenate(parts).astype(np.float32)


def at_bits(x: np.ndarray, bits: float, kind: aq.quantizers.Quantizer | str) -> aq.Levels:
    """The finest levels whose frame has at most this many bits per element."""
    kind, low, high = find(kind), 1e-2, 1e4

    def levels(s: float) -> aq.Levels:
        whole, stretch = kind.levels_for(s, np.array(LENGTHS))
        return aq.quantize(x, whole, 5, LENGTHS, stretch, kind)

    for _ in range(16):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if 8 * len(aq.encode(levels(middle))) > bits * len(x) else (middle, high)
    return levels(low)


def error(x: np.ndarray, levels: aq.Levels) -> float:
    return find("mixed").drawn_error(x, levels)


@pytest.mark.parametrize("bits", [0.3, 1.0])
def test_with_lines_of_different_size_it_errs_much_less_at_equal_bytes(bits: float, rng: np.random.Generator) -> None:
    x = update(rng)
    assert error(x, at_bits(x, bits, Shaped(SHAPES))) < 0.7 * error(x, at_bits(x, bits, "mixed"))


@pytest.mark.parametrize("s", [2, 40, 1000, 20_000])
def test_with_equal_lines_it_is_mixed(s: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal(sum(LENGTHS)).astype(np.float32)
    levels, plain = (aq.quantize(x, s, 1, LENGTHS, 1.0, kind) for kind in (Shaped(SHAPES), "mixed"))
    assert replace(levels, quantizer="mixed") == plain
    np.testing.assert_array_equal(levels.dequantize(), plain.dequantize())
    assert len(aq.encode(levels)) <= len(aq.encode(plain)) + 8


@pytest.mark.parametrize("bits", [0.1, 0.3, 3.0, 5.0])
@pytest.mark.parametrize("spread", [0.3, 1.5])
def test_it_is_never_much_worse_than_mixed(bits: float, spread: float, rng: np.random.Generator) -> None:
    x = update(rng, spread)
    assert error(x, at_bits(x, bits, Shaped(SHAPES))) < 1.1 * error(x, at_bits(x, bits, "mixed"))


@pytest.mark.parametrize("s", [5, 40, 400])
def test_levels_cost_about_as_much_as_those_of_mixed(s: int, rng: np.random.Generator) -> None:
    x = update(rng)
    ours, plain = (len(aq.compress(x, s, 1, "auto", LENGTHS, quantizer=kind)) for kind in (Shaped(SHAPES), "mixed"))
    assert 0.85 * plain < ours < 1.15 * plain


def test_its_squared_bias_is_at_most_a_hundredth_of_its_error(rng: np.random.Generator) -> None:
    """As `mixed` promises; a false alarm, 5 standard errors beyond it, has probability below 1e-6."""
    x, keys = update(rng), 100
    seen = np.array([aq.quantize(x, 60, key, LENGTHS, 1.0, Shaped(SHAPES)).dequantize() for key in range(keys)])
    assert aq.quantize(x, 60, 0, LENGTHS, 1.0, Shaped(SHAPES)).factors
    errors = seen.var(axis=0, ddof=1, dtype=np.float64)
    bias = np.square(seen.mean(axis=0, dtype=np.float64) - x) - errors / keys
    assert bias.sum() < 0.01 * errors.sum() + 5 * math.sqrt(2) * np.linalg.norm(errors) / keys


@pytest.mark.parametrize("name", ["uniform", "mixed", "shaped"])
def test_without_shapes_every_quantizer_is_itself(name: str, rng: np.random.Generator) -> None:
    x = update(rng)
    assert aq.quantize(x, 9, 1, LENGTHS, quantizer=name).factors == ()
    other = find(name).with_shapes([(7, 7)])  # of another model: not used
    assert aq.quantize(x, 9, 1, LENGTHS, quantizer=other).factors == ()


def test_groups_follow_the_channels_of_a_convolution(rng: np.random.Generator) -> None:
    shape = (64, 5, 5, 32)
    tensor = rng.standard_normal(shape) * np.exp(1.5 * rng.standard_normal((64, 1, 1, 1)))
    x = tensor.astype(np.float32).ravel()
    (matrix,) = aq.quantize(x, 60, 1, [x.size], 1.0, Shaped([shape])).factors
    groups = {matrix.rows.size // matrix.rows.group if matrix.rows.group else 0}
    assert groups == {64}


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
def test_odd_sizes_survive(scale: float, rng: np.random.Generator) -> None:
    x = (update(rng) * scale).astype(np.float32)
    levels = aq.quantize(x, 300, 1, LENGTHS, 1.0, Shaped(SHAPES))
    assert aq.decode(aq.encode(levels)) == levels
    assert error(x / np.float32(scale), replace(levels, scale=levels.scales / np.float32(scale))) < 0.5


def test_zeros_and_dead_rows_survive(rng: np.random.Generator) -> None:
    x = update(rng)
    x[: 40 * 400] = 0
    levels = aq.quantize(x, 60, 1, LENGTHS, 1.0, Shaped(SHAPES))
    assert levels.factors
    assert error(x, levels) < error(x, aq.quantize(x, 60, 1, LENGTHS, 1.0, "mixed"))
    assert not aq.quantize(0 * x, 300, 1, LENGTHS, 1.0, Shaped(SHAPES)).dequantize().any()
    with pytest.raises(aq.QuantizeError, match="NaN"):
        aq.quantize(np.where(x > 0, x, np.nan), 300, 1, LENGTHS, 1.0, Shaped(SHAPES))


def test_levels_do_not_depend_on_the_threads(rng: np.random.Generator) -> None:
    shape = (500, 700)
    x = (rng.standard_normal(shape) * np.exp(rng.standard_normal((500, 1)))).astype(np.float32).ravel()
    found = []
    try:
        for threads in (1, 3):
            set_threads(threads)
            found.append(aq.quantize(x, 400, 2, [x.size], 1.0, Shaped([shape])))
            found.append(found[-1].dequantize())
    finally:
        set_threads(None)
    assert found[0].factors
    assert found[0] == found[2]
    np.testing.assert_array_equal(found[1], found[3])


def test_a_sum_of_frames_is_the_sum_of_what_they_decode_to(rng: np.random.Generator) -> None:
    x = update(rng)
    total, expected = aq.Accumulator(x.size), np.zeros(x.size)
    for client in range(3):
        frame = aq.compress(x, 60 + client, client, "auto", LENGTHS, quantizer=Shaped(SHAPES))
        total.add(frame, weight=0.25 * (client + 1))
        expected += 0.25 * (client + 1) * aq.decode(frame).dequantize()
    np.testing.assert_allclose(total.result(), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_a_clients_update_has_factors_and_its_survey_measures_them(rng: np.random.Generator) -> None:
    x = np.split(update(rng), np.cumsum(LENGTHS)[:-1])
    names = [f"tensor {place}" for place in range(len(SHAPES))]
    weights = {name: np.zeros(shape, dtype=np.float32) for name, shape in zip(names, SHAPES, strict=True)}
    moved = {name: part.reshape(shape) for name, part, shape in zip(names, x, SHAPES, strict=True)}
    server, client = aq.Server(weights, rule=CostAware(s0=40), quantizer="shaped"), aq.Client(0)
    client.open(server.open([0])[0])
    reply = reply_of(client, client.reply(moved, loss=1.0, examples=10, probe=lambda weights: 1.0, measure_error=True))
    levels = aq.decode(reply.frame)
    assert levels.factors
    assert client.error == pytest.approx(error(np.concatenate(x), levels), rel=1e-3)
    flat, client = np.concatenate(x), aq.Client(1)
    server = aq.Server(0 * flat, rule=aq.Fixed(bits=4), quantizer="shaped")
    client.open(server.open([1])[1])
    assert aq.decode(reply_of(client, client.reply(flat, loss=1.0)).frame).factors == (), "a bare vector has no rows"


def test_an_allowed_error_is_met(rng: np.random.Generator) -> None:
    x, kind, segments = update(rng), Shaped(SHAPES), np.array(LENGTHS)
    s = levels_for_error(kind, x, 0.5, 7, segments)
    whole, stretch = kind.levels_for(s, segments)
    assert error(x, aq.quantize(x, whole, 7, segments, stretch, kind)) < 0.5


PLAIN = Axis(8)
MATRICES = {
    "beyond the dimension": Matrix(60, PLAIN, PLAIN),
    "before the vector": Matrix(-1, PLAIN, PLAIN),
    "too small": Matrix(0, Axis(7), PLAIN),
    "a group beyond the axis": Matrix(0, Axis(8, 9, b"\0"), PLAIN),
    "too few exponents": Matrix(0, Axis(8, 3, b"\0\0"), PLAIN),
    "too large an exponent": Matrix(0, Axis(8, 4, b"\0\x40"), PLAIN),
}


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_factors_that_mean_nothing_are_not_written(matrix: Matrix) -> None:
    levels = aq.quantize(np.ones(100), 9, 1, quantizer="shaped")
    with pytest.raises(aq.FrameError):
        aq.encode(replace(levels, factors=(matrix,)))


def test_matrices_do_not_overlap_and_belong_to_shaped() -> None:
    one = Matrix(0, Axis(8, 4, b"\0\1"), PLAIN)
    levels = aq.quantize(np.ones(200), 9, 1, quantizer="shaped")
    for factors in ((one, one), (replace(one, start=70), one)):
        with pytest.raises(aq.FrameError, match="overlap"):
            aq.encode(replace(levels, factors=factors))
    with pytest.raises(aq.FrameError, match="mixed has none"):
        aq.encode(replace(levels, factors=(one,), quantizer="mixed"))


HEAD = bytes([1, 0, 8, 8])  # one matrix of 8 x 8 at the start


@pytest.mark.parametrize(
    "data",
    [
        b"\x02",  # more matrices than the bytes have
        b"\x11" + bytes([0, 8, 8, 0, 0]) * 17 + bytes(2),  # 17: too many for so short a vector
        HEAD,
        HEAD + bytes([9, 0, 0, 0, 0]),  # a group of 9 of 8 rows
        HEAD + bytes([8, 128, 0, 0, 1, 0]),  # the first byte of an axis
        HEAD + bytes([8, 0, 0, 8, 1, 0]),  # remainders of 8 bits
        HEAD + bytes([1, 0, 0, 0, 0]),  # 8 exponents in no byte
        HEAD + bytes([1, 0, 0, 0, 1, 255]),  # unary without an end
        HEAD + bytes([8, 0, 0, 0, 1, 1]),  # -1
        HEAD + bytes([8, 63, 0, 0, 1, 3]),  # 64
        HEAD + bytes([8, 0, 0, 0, 1, 2]),  # a bit behind the last code
        HEAD + bytes([8, 0, 0, 0, 2, 0, 0]),  # a byte too many
        HEAD + bytes([8, 0, 0, 0, 200, 0]),  # truncated
        bytes([1, 0, *b"\xff\xff\xff\xff\x0f" * 2, 0, 0, 0, 0]),  # 2^64 elements
    ],
)
def test_factors_that_mean_nothing_are_refused(data: bytes) -> None:
    with pytest.raises(aq.FrameError):
        read_factors(memoryview(data), 0, 100)


def test_factors_take_the_shorter_of_two_ways(rng: np.random.Generator) -> None:
    smooth = np.clip(20 + rng.integers(-1, 2, 300).cumsum(), 0, 63).astype(np.uint8)
    for exponents, bits in ((smooth, 2.2), (rng.permutation(smooth), 6.0)):
        matrix = Matrix(3, Axis(300, 1, exponents.tobytes()), Axis(10))
        packed = pack_factors([matrix])
        assert len(packed) < bits * 300 / 8 + 12
        assert read_factors(memoryview(packed), 0, 4000) == ((matrix,), len(packed))


def test_a_long_block_of_exponents_is_refused_before_it_is_unpacked() -> None:
    """Eight times as many bytes would be unpacked, and a place for each."""
    zeros = bytes(1 << 20)
    data = HEAD + bytes([8, 0, 0, 0]) + varint(len(zeros)) + zeros
    tracemalloc.start()
    try:
        with pytest.raises(aq.FrameError, match="do not fill their bytes"):
            read_factors(memoryview(data), 0, 100)
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()
