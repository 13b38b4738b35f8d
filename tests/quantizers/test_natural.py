"""Natural dithering, TernGrad and STC do what their papers say.

Statistical tests use fixed seeds and z = 5 for one statistic (false alarm 6e-7), 5.5 for a few hundred.
"""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers.rivals import clipped
from adaquantfl.quantizers.segments import Segments


def drawn(x: np.ndarray, s: int, name: str, draws: int, norm: str | None = None) -> np.ndarray:
    """Each draw is a segment of one long vector."""
    levels = aq.quantize(np.tile(x, draws), s, aq.stream_key(4, 0, 0), [len(x)] * draws, quantizer=name, norm=norm)
    return levels.dequantize().reshape(draws, -1).astype(np.float64)


@pytest.mark.parametrize(("s", "norm"), [(1, "l2"), (4, "linf"), (30, "l2")])
def test_natural_dithering_is_unbiased_and_within_its_bound(s: int, norm: str, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(300) * np.exp(rng.standard_normal(300))).astype(np.float32)
    seen = drawn(x, s, "natural", 3000, norm)
    unit = float(np.linalg.norm(x) if norm == "l2" else np.abs(x).max())
    t = np.abs(x.astype(np.float64)) / unit
    low = np.where(t < 2.0 ** (1 - s), 0.0, 2.0 ** np.floor(np.log2(t)))
    high = np.where(low > 0, 2 * low, 2.0 ** (1 - s))
    deviation = np.sqrt(np.maximum((t - low) * (high - t), 0.0) / len(seen))
    rare = 8 * (high - low) / len(seen)  # the few times that a small chance comes up are not Gaussian
    assert np.all(np.abs(seen.mean(axis=0) - x) / unit < 5.5 * deviation + rare)
    ratio = np.mean(np.sum((seen - x) ** 2, axis=1)) / np.sum(x**2)
    rest = np.sqrt(300) * 2.0 ** (1 - s)  # of their theorem, for norms from l2 on
    assert ratio <= 1 / 8 + rest * min(1, rest)


def test_no_element_above_the_smallest_level_errs_by_more_than_an_eighth(rng: np.random.Generator) -> None:
    # The variance of t between 2^e and 2^(e+1) is (t - 2^e) (2^(e+1) - t): at most t^2 / 8, at t = 4/3 2^e.
    x = rng.uniform(0.01, 1.0, 400).astype(np.float32)
    x[0], x[1] = 1.0, 1 / 3
    variances = drawn(x, 20, "natural", 4000, "linf").var(axis=0)
    low = 2.0 ** np.floor(np.log2(x.astype(np.float64)))
    np.testing.assert_allclose(variances, (x - low) * (2 * low - x), atol=0.15 * x.max() ** 2 / 8)
    assert (variances / x**2).max() < 1.2 / 8
    assert variances[1] * 9 == pytest.approx(1 / 8, rel=0.1)


def test_terngrad_is_unbiased_for_the_clipped_vector_and_biased_for_what_was_cut(rng: np.random.Generator) -> None:
    x = rng.standard_normal(300).astype(np.float32)
    x[5] = 20.0
    cut = clipped(x, Segments.of(None, 300))
    assert cut[5] == pytest.approx(2.5 * x.std(), rel=1e-5)
    assert np.array_equal(cut[np.abs(x) < 2], x[np.abs(x) < 2])
    seen = drawn(x, 1, "terngrad", 3000)
    assert set(np.unique(seen)) == {-np.abs(cut).max(), 0, np.abs(cut).max()}
    p = np.abs(cut) / np.abs(cut).max()
    z = (seen.mean(axis=0) - cut) / np.maximum(np.abs(cut).max() * np.sqrt(p * (1 - p) / len(seen)), 1e-3)
    assert np.abs(z).max() < 5.5
    sums = np.sum((seen - cut) ** 2, axis=1)
    expected = np.sum(np.abs(cut) * (np.abs(cut).max() - np.abs(cut)))
    assert abs(sums.mean() - expected) < 5 * sums.std() / np.sqrt(len(sums))
    assert x[5] - seen[:, 5].mean() > 10


def test_terngrad_clips_each_segment_by_its_own_deviation() -> None:
    x = np.array([1, -1] * 50 + [100] + [7] * 10, dtype=np.float32)
    cut = clipped(x, Segments.of([101, 10], 111))
    assert cut[100] == pytest.approx(2.5 * x[:101].std(), rel=1e-5)
    assert cut[101:].tolist() == [7.0] * 10


@pytest.mark.parametrize("s", [1, 7, 65_535])
def test_stc_keeps_the_largest_at_their_mean(s: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal(1000).astype(np.float32)
    levels = aq.quantize(x, s, 0, quantizer="stc")
    order = np.argsort(-np.abs(x))[: max(1, 1000 // s)]
    expected = np.zeros(1000)
    expected[order] = np.sign(x[order]) * np.abs(x[order]).mean()
    np.testing.assert_allclose(levels.dequantize(), expected, rtol=1e-6)
    # For a mean over the kept, the error is ||x||^2 - k mean^2.
    left = np.sum(levels.remainder(x).astype(np.float64) ** 2)
    assert left == pytest.approx(
        np.sum(x.astype(np.float64) ** 2) - len(order) * np.abs(x[order]).mean() ** 2, rel=1e-4
    )


def test_ties_are_kept_in_order() -> None:
    levels = aq.quantize(np.array([1, -1, 1, 1, 0], dtype=np.float32), 2, 0, quantizer="stc")
    assert levels.values.tolist() == [1, -1, 0, 0, 0]
