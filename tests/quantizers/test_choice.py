"""The coarsest levels with an allowed error, for every quantizer whose levels a rule can choose."""

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.coding import compress_within
from adaquantfl.quantizers import find
from adaquantfl.quantizers.base import MaxError, Resolution, norm_of
from adaquantfl.quantizers.choice import CLOSE, delay, drawn_error, exact_error

LENGTHS = np.array([3_000, 800, 10])
QUANTIZERS = ("uniform", "lattice", "centroid", "nearest", "fitted", "rotated")


def update(kind: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    size = np.repeat([1.0, 0.1, 3.0], LENGTHS)
    x = rng.standard_normal(LENGTHS.sum()) * size
    if kind == "sparse":
        x *= rng.random(len(x)) < 0.02
    return x.astype(np.float32)


@pytest.mark.parametrize("name", QUANTIZERS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("allowed", [0.02, 0.7])
def test_the_error_is_allowed_and_used(name: str, kind: str, allowed: float) -> None:
    quantizer, x = find(name), update(kind)
    norm, balanced = norm_of(quantizer, None), quantizer.traits.balanced

    def error(s: int, stretch: float | np.ndarray) -> float:
        exact = exact_error(quantizer, x, s, stretch, LENGTHS, norm)
        levels = aq.quantize(x, s, 7, LENGTHS, stretch, quantizer)
        return drawn_error(x, levels) if exact is None else exact

    s, stretch = quantizer.levels_for(MaxError(allowed), LENGTHS, x, balanced, 7, norm)
    found = error(s, stretch)
    assert found <= allowed * (1 + 1e-6)
    # Coarser levels would not do, except where the quantizer has none, or its error jumps.
    assert found >= 0.5 * CLOSE * allowed or s == 1 or error(s, 1.25 * stretch) > allowed


def test_an_update_of_zeros_takes_one_level() -> None:
    for name in QUANTIZERS:
        zeros = np.zeros(20, dtype=np.float32)
        assert find(name).levels_for(MaxError(0.5), np.array([20]), zeros)[0] == 1


def test_what_cannot_be_reached_takes_many_levels() -> None:
    assert find("uniform").levels_for(MaxError(1e-12), LENGTHS, update("dense"), norm="l2")[0] > 10_000


@pytest.mark.parametrize("allowed", [0.8, 0.9])
def test_with_error_feedback_the_delay_is_used_up_also_near_the_whole_update(allowed: float) -> None:
    x = np.random.default_rng(1).standard_t(3, LENGTHS.sum()).astype(np.float32)
    frame, left_out = compress_within(x, allowed, segments=LENGTHS)
    error = float(np.sum(left_out.astype(np.float64) ** 2) / np.sum(x.astype(np.float64) ** 2))
    assert CLOSE * delay(allowed) <= delay(error) <= delay(allowed) * (1 + 1e-5)
    np.testing.assert_array_equal(x - aq.decode(frame).dequantize(), left_out)


def test_a_resolution_has_the_bits_that_the_range_needs() -> None:
    x = np.array([-3, 1], dtype=np.float32)  # 8 steps of 0.5: 3 bits
    assert find("uniform").levels_for(Resolution(0.5), np.array([2]), x, norm="linf") == (6, 1.0)


def test_a_target_that_depends_on_the_vector_needs_it() -> None:
    with pytest.raises(aq.QuantizeError, match="pass it as x"):
        find("uniform").levels_for(MaxError(0.5), LENGTHS)
