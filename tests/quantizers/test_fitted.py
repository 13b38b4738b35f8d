"""Fitted: nearest levels with the step that leaves out least."""

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers import find
from adaquantfl.quantizers.base import Count
from adaquantfl.quantizers.choice import drawn_error


def vector(count: int, seed: int = 0, heavy: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_t(2, count) if heavy else rng.standard_normal(count)).astype(np.float32)


@pytest.mark.parametrize(("s", "heavy"), [(1, False), (2, True), (40, False)])
def test_no_other_step_leaves_out_less(s: int, heavy: bool) -> None:
    x = vector(3_000, s, heavy)
    levels = aq.quantize(x, s, 0, [1_000, 2_000], quantizer="fitted")
    ours = np.square(levels.dequantize() - x, dtype=np.float64).sum()
    for factor in (0.9, 0.99, 1.01, 1.1):
        other = np.square(levels.dequantize() * np.float32(factor) - x, dtype=np.float64).sum()
        assert ours < other
    assert (levels.values == aq.quantize(x, s, 0, [1_000, 2_000], quantizer="nearest").values).all()


def test_its_error_is_known_without_decoding_and_below_one() -> None:
    x = vector(5_000, 1, heavy=True)
    for s in (1, 3, 100):
        levels = aq.quantize(x, s, 0, quantizer="fitted")
        measured = np.square(levels.dequantize() - x, dtype=np.float64).sum() / np.square(x, dtype=np.float64).sum()
        assert find("fitted").error_of(x, levels) == pytest.approx(measured, abs=1e-6)
        assert measured < 1


def uneven() -> tuple[np.ndarray, np.ndarray]:
    """An update of three tensors, of which one moves ten times as far as the others."""
    lengths = np.array([20_000, 20_000, 100])
    return vector(40_100, 3) * np.repeat(np.float32([1, 10, 1]), lengths), lengths


def test_balanced_segments_have_one_step() -> None:
    x, lengths = uneven()
    largest = [np.abs(part).max() for part in np.split(x, np.cumsum(lengths)[:-1])]
    for s in (0.6, 1.0, 7.5):
        whole, stretch = find("fitted").levels_for(Count(s), lengths, x, balanced=True)
        assert largest * stretch / whole == pytest.approx(np.full(3, max(largest) / s), rel=1e-6)


@pytest.mark.parametrize("balanced", [True, False])
def test_something_is_sent_however_few_levels_a_rule_asks_for(balanced: bool) -> None:
    x, lengths = uneven()
    whole, stretch = find("fitted").levels_for(Count(1e-9), lengths, x, balanced)
    levels = aq.quantize(x, whole, 0, lengths, stretch, "fitted")
    assert np.count_nonzero(levels.values) >= 1
    assert drawn_error(x, levels) < 1
