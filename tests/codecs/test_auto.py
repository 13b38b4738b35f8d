"""`auto` takes the smallest frame, and the choice of a codec changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs.frame import payload_size

CODECS = ("fixed", "sparse", "dense")
EVERY_WIDTH = [1, 2, 3, 5, 100, 200, 255, 5000, 40_000, 65_535, *(2**bits - 1 for bits in range(3, 16))]


def vector(kind: str, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    draws = {
        "gauss": lambda: rng.standard_normal(d),
        "laplace": lambda: rng.laplace(size=d),
        "heavy": lambda: rng.standard_t(2, d),
        "uniform": lambda: rng.uniform(-1, 1, d),
        "layers": lambda: rng.standard_normal(d) * np.repeat(np.exp(rng.normal(0, 2, -(-d // 5000))), 5000)[:d],
        "mostly zero": lambda: rng.standard_normal(d) * (rng.random(d) < 0.001),
        "zero": lambda: np.zeros(d),
        "one": lambda: np.eye(1, d, d // 2)[0],
    }
    return draws[kind]().astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "s"),
    [
        ("gauss", 1), ("gauss", 65535), ("laplace", 40), ("heavy", 400), ("uniform", 40), ("layers", 1),
        ("layers", 65535), ("mostly zero", 40), ("mostly zero", 65535), ("zero", 1), ("one", 400),
    ],
)  # fmt: skip
def test_auto_is_within_one_percent_of_the_smallest(kind: str, s: int) -> None:
    x = vector(kind, 400_000)
    sizes = {codec: payload_size(aq.compress(x, s, 1, codec)) for codec in CODECS}
    auto = aq.compress(x, s, 1)
    assert payload_size(auto) <= 1.01 * min(sizes.values()) + 16
    assert auto == aq.encode(aq.quantize(x, s, 1))
    assert auto in {aq.compress(x, s, 1, codec) for codec in CODECS}


@given(
    data=st.data(),
    kind=st.sampled_from(["gauss", "heavy", "mostly zero", "zero", "one"]),
    d=st.integers(1, 20_000),
    pieces=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_every_codec_carries_the_same_levels(data: st.DataObject, kind: str, d: int, pieces: int, seed: int) -> None:
    s = data.draw(st.sampled_from(EVERY_WIDTH))
    x = vector(kind, d, seed)
    cuts = np.unique(np.append(np.random.default_rng(seed).integers(1, d + 1, pieces), d))
    segments = None if pieces == 1 else np.diff(np.append(0, cuts))
    levels = aq.quantize(x, s, seed, segments)
    sums = set()
    for codec in ("auto", *CODECS):
        frame = aq.encode(levels, codec)
        assert frame == aq.compress(x, s, seed, codec, segments)
        assert aq.decode(frame, dimension=d) == levels
        assert aq.decode(frame).values.dtype == levels.values.dtype
        total = aq.Accumulator(d)
        total.add(frame, 0.3)
        total.add(frame, 0.7)
        sums.add(total.result().tobytes())
    assert len(sums) == 1


def test_short_vectors_get_exactly_the_smallest_frame() -> None:
    for kind in ("gauss", "heavy", "one"):
        for d in (1, 10, 1000, 16_384):
            for s in (1, 3, 200):
                x = vector(kind, d)
                assert len(aq.compress(x, s, 1)) == min(len(aq.compress(x, s, 1, codec)) for codec in CODECS)


@given(
    data=st.data(),
    d=st.integers(1, 3000),
    density=st.sampled_from([0.02, 0.3, 0.6, 0.9, 1.0]),
    top=st.sampled_from([1, 2, 3, 4, 20, 300]),
)
def test_of_a_short_vector_of_any_order_auto_is_the_smallest(
    data: st.DataObject, d: int, density: float, top: int
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    values = (rng.integers(-top, top + 1, d) * (rng.random(d) < density)).astype(np.int16)
    values = data.draw(st.sampled_from([values, np.sort(values), np.where(np.arange(d) < d // 2, values, 0)]))
    levels = aq.Levels(values.astype(np.int16), np.float32(1), top)
    assert len(aq.encode(levels)) == min(len(aq.encode(levels, codec)) for codec in CODECS)


def test_frames_of_all_codecs_add_up_together_for_any_number_of_threads(rng: np.random.Generator) -> None:
    d = 300_007
    frames = [
        aq.compress(rng.standard_normal(d).astype(np.float32), s, k, codec, segments)
        for k, (s, codec) in enumerate([(2, "sparse"), (2, "fixed"), (400, "dense"), (3, "auto"), (65535, "auto")])
        for segments in (None, [100_000, 200_007])
    ]
    results = []
    for threads in (1, 2, 3):
        aq.set_threads(threads)
        total = aq.Accumulator(d)
        for frame in frames:
            total.add(frame, 0.1)
            if threads == 3:
                total.result()  # when it is read does not matter either
        results.append(total.result().tobytes())
    assert len(set(results)) == 1
    expected = sum(0.1 * aq.decode(frame).dequantize().astype(np.float64) for frame in frames)
    np.testing.assert_allclose(np.frombuffer(results[0], dtype=np.float32), expected, rtol=1e-4, atol=1e-5)
