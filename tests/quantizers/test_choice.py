"""The coarsest levels with an allowed error, for every quantizer whose levels a rule can choose."""

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.coding import quantize_within
from adaquantfl.quantizers import find, names
from adaquantfl.quantizers.base import Count, MaxError, Resolution, norm_of
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
@pytest.mark.parametrize(("kind", "allowed"), [("dense", 0.02), ("sparse", 0.7)])
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


@pytest.mark.parametrize("allowed", [0.9])
def test_with_error_feedback_the_delay_is_used_up_also_near_the_whole_update(allowed: float) -> None:
    x = np.random.default_rng(1).standard_t(3, LENGTHS.sum()).astype(np.float32)
    levels = quantize_within(x, allowed, segments=LENGTHS)
    left_out = levels.remainder(x)
    error = float(np.sum(left_out.astype(np.float64) ** 2) / np.sum(x.astype(np.float64) ** 2))
    assert CLOSE * delay(allowed) <= delay(error) <= delay(allowed) * (1 + 1e-5)
    np.testing.assert_array_equal(x - aq.decode(aq.encode(levels)).dequantize(), left_out)
    levels.take_from(x)
    np.testing.assert_array_equal(x, left_out)


def test_a_resolution_has_the_bits_that_the_range_needs() -> None:
    x = np.array([-3, 1], dtype=np.float32)  # 8 steps of 0.5: 3 bits
    assert find("uniform").levels_for(Resolution(0.5), np.array([2]), x, norm="linf") == (6, 1.0)


def test_a_target_that_depends_on_the_vector_needs_it() -> None:
    with pytest.raises(aq.QuantizeError, match="pass it as x"):
        find("uniform").levels_for(MaxError(0.5), LENGTHS)


def test_levels_are_a_pure_function_that_a_server_can_check_except_where_they_say_so(rng: np.random.Generator) -> None:
    lengths = np.array([3000, 40])
    update = rng.standard_normal(3040).astype(np.float32)
    for name in names():
        kind = find(name)
        for s in (0.3, 1.0, 6.5, 90.0):
            assert kind.levels_for(Count(s), lengths) == kind.levels_for(Count(s), lengths, update)
            if not kind.traits.balanced:
                continue
            whole, stretch = kind.levels_for(Count(s), lengths, update, balanced=True)
            if not kind.traits.feedback:  # with error feedback all segments have one step, whatever their length
                assert (whole / stretch)[1] > (whole / stretch)[0]
            if kind.traits.balanced_by_update:
                with pytest.raises(aq.QuantizeError, match="pass it"):
                    kind.levels_for(Count(s), lengths, balanced=True)
            else:
                again, same = kind.levels_for(Count(s), lengths, balanced=True)
                assert again == whole
                np.testing.assert_array_equal(same, stretch)


@pytest.mark.parametrize(("name", "most"), [("natural", 127), ("centroid", 65_535)])
def test_a_rule_that_asks_for_too_many_levels_gets_the_most(name: str, most: int, rng: np.random.Generator) -> None:
    lengths, update = np.array([3, 4]), rng.standard_normal(7).astype(np.float32)
    assert find(name).levels_for(Count(1e6), lengths) == (most, 1.0)
    whole, stretch = find(name).levels_for(Count(1e6), lengths, update, balanced=True)
    assert (whole, stretch.tolist()) == (most, [1.0, 1.0])


def test_every_number_of_levels_is_one_that_the_quantizer_takes(rng: np.random.Generator) -> None:
    """Also where s / ceil(s) is not exact: a stretch is at least 1."""
    x = rng.standard_normal(64).astype(np.float32)
    for name in ("uniform", "centroid", "eden"):
        for s in np.geomspace(0.01, 120.0, 20).tolist():
            whole, stretch = find(name).levels_for(Count(s), np.array([64]))
            assert aq.quantize(x, whole, 1, stretch=stretch, quantizer=name).s == whole
