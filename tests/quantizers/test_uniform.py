"""The stochastic uniform quantizer keeps the promises of eq. 4 to 7.

Statistical tests use fixed seeds. Their thresholds are z = 5 for one statistic (false alarm 6e-7) and more for a
maximum over many, as stated.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import adaquantfl as aq
from adaquantfl.quantizers.base import whole_levels
from adaquantfl.quantizers.streams import uniforms
from adaquantfl.quantizers.uniform import expected_error, reference
from adaquantfl.theory import variance_bound


def mean_levels(x: np.ndarray, s: int, draws: int) -> np.ndarray:
    total = np.zeros(len(x))
    for k in range(draws):
        total += aq.quantize(x, s, aq.stream_key(11, k, 0)).values
    return total / draws


def test_every_coordinate_is_unbiased(rng: np.random.Generator) -> None:
    x, s, draws = rng.standard_normal(300).astype(np.float32), 3, 4000
    exact = x.astype(np.float64) * s / np.float64(np.linalg.norm(x))
    p = np.abs(exact) % 1.0
    z = (mean_levels(x, s, draws) - exact) / np.sqrt(p * (1 - p) / draws)
    assert np.abs(z).max() < 5.5  # 300 coordinates: false alarm 1e-5
    assert abs(z.mean()) * np.sqrt(len(z)) < 5


@pytest.mark.parametrize("p", [1e-5, 1e-2])
def test_tiny_probabilities_are_unbiased(p: float) -> None:
    # One large element sets the norm; a million others each round up with probability p.
    d = 1_000_000
    x = np.full(d + 1, p, dtype=np.float32)
    x[0] = np.sqrt(1.0 - d * p**2) if d * p**2 < 1 else 1.0
    norm = float(np.linalg.norm(x.astype(np.float64)))
    hits = sum(int(aq.quantize(x, 1, aq.stream_key(3, k, 0)).values[1:].sum()) for k in range(40))
    expected = 40 * d * p / norm
    assert abs(hits - expected) < 5 * np.sqrt(expected)


def test_variance_is_the_sum_of_rounding_variances_and_within_the_bounds(rng: np.random.Generator) -> None:
    for d, s in ((200, 1), (1000, 4), (5000, 30)):
        x = (rng.standard_normal(d) * np.exp(rng.standard_normal(d))).astype(np.float32)
        exact = expected_error(x, s, 1.0, None) * float(np.sum(x.astype(np.float64) ** 2))
        errors = [
            float(np.sum((aq.quantize(x, s, aq.stream_key(5, k, 1)).dequantize() - x.astype(np.float64)) ** 2))
            for k in range(600)
        ]
        assert abs(np.mean(errors) - exact) < 5 * np.std(errors) / np.sqrt(len(errors))
        assert exact <= variance_bound(d, s) * float(np.sum(x.astype(np.float64) ** 2))


@given(
    values=st.lists(st.integers(-50, 50), min_size=1, max_size=60).filter(any),
    power=st.integers(-20, 20),
    key=st.integers(0, 2**64 - 1),
)
def test_grid_points_are_exact(values: list[int], power: int, key: int) -> None:
    # With s equal to the norm of integers, every element lies on the grid.
    squares = sum(v * v for v in values)
    root = int(np.ceil(np.sqrt(squares)))
    rest = root * root - squares
    extra = []
    while rest:
        extra.append(int(np.sqrt(rest)))
        rest -= extra[-1] ** 2
    integers = np.array(values + extra)
    x = (integers * 2.0**power).astype(np.float32)
    levels = aq.quantize(x, s=root, key=key)
    assert np.array_equal(levels.values, integers)
    np.testing.assert_array_equal(levels.dequantize(), x)


@given(
    x=hnp.arrays(np.float32, st.integers(1, 200), elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    s=st.sampled_from([1, 2, 3, 127, 128, 255, 32767, 32768, 65535]),
    key=st.integers(0, 2**64 - 1),
)
@settings(max_examples=200)
def test_levels_stay_within_s_and_next_to_the_value(x: np.ndarray, s: int, key: int) -> None:
    levels = aq.quantize(x, s, key)
    assert int(np.abs(levels.values.astype(np.int64)).max()) <= s
    if levels.scale > 0:
        exact = x.astype(np.float64) * s / np.float64(levels.scale)  # the smallest norms are coarse in float32
        assert np.all(np.abs(levels.values - exact) <= 1 + 1e-6 * np.abs(exact))
        assert np.all(levels.values * np.sign(x) >= 0)
    assert levels.scale == np.float32(np.linalg.norm(x.astype(np.float64)))


def test_each_segment_has_its_own_norm(rng: np.random.Generator) -> None:
    x = rng.standard_normal(1000).astype(np.float32)
    x[300:] *= 1e-3
    levels = aq.quantize(x, 50, 1, segments=[300, 700])
    expected = [np.linalg.norm(x[:300].astype(np.float64)), np.linalg.norm(x[300:].astype(np.float64))]
    np.testing.assert_allclose(levels.scale, expected, rtol=1e-7)
    error = levels.dequantize() - x
    assert np.abs(error[300:]).max() <= expected[1] / 50 * 1.001


def test_streams_of_clients_and_rounds_are_uncorrelated() -> None:
    # With p = 1/2 everywhere the levels are coin flips: correlations of 20,000 flips, 90 pairs, false alarm 5e-5.
    x = np.full(20_000, 1.0, dtype=np.float32)
    s = int(np.sqrt(20_000) * 0.5)
    keys = [aq.stream_key(0, k, c) for k in range(4) for c in range(3)] + [
        aq.stream_key(1, 0, 0),
        aq.stream_key(2, 0, 0),
    ]
    flips = np.stack([aq.quantize(x, s, key).values for key in keys]).astype(np.float64)
    flips -= flips.mean(axis=1, keepdims=True)
    z = np.corrcoef(flips)[np.triu_indices(len(keys), 1)] * np.sqrt(x.size)
    assert np.abs(z).max() < 5
    # Nor is one stream a shifted copy of another, or of itself.
    for shift in (1, 2, 3, 64, 1024):
        assert abs(np.mean(flips[0, shift:] * flips[1, :-shift])) / flips[0].var() * np.sqrt(x.size) < 5
        assert abs(np.mean(flips[0, shift:] * flips[0, :-shift])) / flips[0].var() * np.sqrt(x.size) < 5


def test_neighbouring_elements_are_uniform_in_the_plane() -> None:
    # Pairs of draws in a 16 x 16 grid: chi-square with 255 degrees, 4 keys, z < 5.
    for client in range(4):
        draws = uniforms(aq.stream_key(0, 0, client), 40_000)
        assert draws.min() >= 0
        assert draws.max() < 1
        cells = np.bincount((16 * draws[0::2]).astype(int) * 16 + (16 * draws[1::2]).astype(int), minlength=256)
        chi2 = np.sum((cells - 20_000 / 256) ** 2) / (20_000 / 256)
        assert abs(chi2 - 255) < 5 * np.sqrt(2 * 255)


@pytest.mark.parametrize(
    ("s", "d"), [(1, 70_001), (2, 33), (15, 1), (255, 1025), (4095, 33), (4096, 70_001), (65_535, 1025)]
)
def test_the_core_does_what_the_paper_writes(d: int, s: int, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(d) * np.exp(rng.standard_normal(d))).astype(np.float32)
    key = aq.stream_key(1, 2, d)
    expected, found = reference(x, s, key), aq.quantize(x, s, key).dequantize()
    ratio = np.abs(x) * s / np.linalg.norm(x.astype(np.float64))
    # The core rounds ratios to 21 bits: where the draw is closer to the fraction than that, both are right.
    close = np.abs(uniforms(key, d) - ratio % 1) < 2.0**-20 * (1 + ratio)
    assert close.mean() < 0.2 if s > 4000 else close.mean() < 0.002
    np.testing.assert_allclose(found[~close], expected[~close], rtol=1e-6)


def test_float64_and_strided_vectors_are_quantized_like_their_float32_copies(rng: np.random.Generator) -> None:
    x = rng.standard_normal(9000)[::3]
    assert aq.quantize(x, 9, 2) == aq.quantize(x.astype(np.float32), 9, 2)
    narrow = rng.standard_normal(9000).astype(np.float32)[::3]
    assert aq.quantize(narrow, 4, 2) == aq.quantize(narrow.copy(), 4, 2)


@pytest.mark.parametrize(
    ("s", "dtype"),
    [(1, np.int8), (127, np.int8), (128, np.int16), (32767, np.int16), (32768, np.int32), (65535, np.int32)],
)
def test_levels_have_the_smallest_type_that_holds_s(s: int, dtype: type) -> None:
    assert aq.quantize(np.ones(3, dtype=np.float32), s, 0).values.dtype == dtype


ONES = np.ones(4, dtype=np.float32)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"x": np.array([1.0, np.nan], dtype=np.float32)}, "NaN or infinite"),
    ({"x": np.array([1.0, -np.inf])}, "index 1"),
    ({"x": np.array([1e300])}, "float32"),
    ({"x": np.full(20, 3e38, dtype=np.float32)}, "norm"),
    ({"x": np.array([], dtype=np.float32)}, "empty"),
    ({"x": np.ones((2, 2), dtype=np.float32)}, "1-D"),
    ({"x": np.ones(2, dtype=np.int32)}, "int32"),
    *(({"s": s}, "1 to 65535") for s in (0, 65536, 2.5)),
    *(({"segments": bad}, "egment") for bad in ([1, 2], [3, 0, 1], [], [1.5, 2.5], [5, -1])),
    *(({"key": bad}, "stream_key") for bad in (-1, 2**64, 1.5, "key")),
    *(({"stretch": bad}, "stretch") for bad in (0.5, math.inf, math.nan)),
    *(
        ({"stretch": np.array(bad), "segments": [2, 2]}, "for each segment")
        for bad in ([1.0, 0.5], [1.0], [1.0, np.inf])
    ),
]


@pytest.mark.parametrize(("call", "word"), BAD)
def test_bad_input_is_refused_with_a_sentence(call: dict[str, Any], word: str) -> None:
    for function in (aq.quantize, aq.compress):
        with pytest.raises(aq.QuantizeError, match=word):
            function(**{"x": ONES, "s": 3, "key": 0} | call)


@pytest.mark.slow
def test_two_to_the_31_elements_are_quantized() -> None:
    d = 2**31 + 1000
    x = np.zeros(d, dtype=np.float32)
    x[[0, 2**31 - 1, 2**31, d - 1]] = [2.0, -2.0, 2.0, -2.0]
    levels = aq.quantize(x, s=2, key=1)
    assert levels.scale == 4.0
    assert np.flatnonzero(levels.values).tolist() == [0, 2**31 - 1, 2**31, d - 1]
    assert levels.values[[0, 2**31 - 1, 2**31, d - 1]].tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize("real", [0.3, 0.5, 1.7])
def test_levels_need_not_be_whole(real: float) -> None:
    s, stretch = whole_levels(real)
    x = np.tile(np.array([0.3, -0.2, 0.05, 0.0], dtype=np.float32), 50_000)
    levels = aq.quantize(x, s, 7, stretch=stretch)
    step = np.float64(levels.scales[0]) / levels.s
    assert step == pytest.approx(np.linalg.norm(x.astype(np.float64)) / real, rel=1e-6)
    means = levels.dequantize().reshape(-1, 4).astype(np.float64).mean(axis=0)
    deviation = np.sqrt(np.abs(x[:4]) * step / 50_000)  # of few and rare levels
    assert np.all(np.abs(means - x[:4]) <= 4 * deviation)
