"""Plain rounding: half a step at most, half of random rounding's error, and feedback that makes up for the bias."""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers.base import Count
from adaquantfl.quantizers.registry import find


def back(x: np.ndarray, s: int, **options: object) -> np.ndarray:
    return aq.quantize(x, s, 0, quantizer="nearest", **options).dequantize()


@pytest.mark.parametrize("s", [1, 127, 4096, 65_535])
def test_no_element_is_off_by_more_than_half_a_step(s: int, rng: np.random.Generator) -> None:
    x = rng.standard_t(3, 5000).astype(np.float32)
    step = np.abs(x).max() / s
    assert np.abs(back(x, s) - x).max() <= (0.5 + 0.01) * step  # 0.01: float32 at s = 65535


def test_every_segment_has_steps_of_its_own_and_stretch_widens_them() -> None:
    x = np.array([1.0, 0.3, 100.0, 30.0], dtype=np.float32)
    np.testing.assert_allclose(back(x, 10, segments=[2, 2]), x, rtol=1e-6)
    levels = aq.quantize(x, 10, 0, [2, 2], np.array([1.0, 2.0]), quantizer="nearest")
    assert levels.values.tolist() == [10, 3, 5, 2]  # 1.5 is a tie
    np.testing.assert_allclose(levels.dequantize(), [1.0, 0.3, 100.0, 40.0], rtol=1e-6)


def test_in_fine_steps_the_error_is_half_of_random_roundings(rng: np.random.Generator) -> None:
    x = rng.standard_normal(100_000).astype(np.float32)
    random = aq.quantize(x, 100, 1, norm="linf").dequantize()
    step = float(np.abs(x).max()) / 100
    assert np.mean((back(x, 100) - x) ** 2) == pytest.approx(step**2 / 12, rel=0.02)
    assert np.mean((random - x) ** 2) == pytest.approx(step**2 / 6, rel=0.02)


@pytest.mark.parametrize("s", [0.01, 1.01, 7.3])
def test_a_rule_never_drives_it_to_send_nothing(s: float, rng: np.random.Generator) -> None:
    x = rng.standard_normal(5000).astype(np.float32)
    whole, stretch = find("nearest").levels_for(Count(s), np.array([5000]))
    assert aq.quantize(x, whole, 0, stretch=stretch, quantizer="nearest").values.any()
    assert not find("nearest").traits.balanced
