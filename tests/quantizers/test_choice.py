"""The coarsest levels with an allowed error, for every quantizer whose levels a rule can choose."""

import numpy as np
import pytest

from adaquantfl.quantizers import find
from adaquantfl.quantizers.choice import CLOSE, delay, error_share, levels_for_error

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
@pytest.mark.parametrize("allowed", [0.02, 0.3, 0.7])
def test_the_error_is_allowed_and_used(name: str, kind: str, allowed: float) -> None:
    quantizer, x = find(name), update(kind)
    norm, balanced = quantizer.norm(None), quantizer.takes_balanced
    s = levels_for_error(quantizer, x, allowed, 7, LENGTHS, norm, balanced)

    def error(s: float) -> float:
        return error_share(quantizer, x, *quantizer.levels_for(s, LENGTHS, x, balanced), 7, LENGTHS, norm)

    assert error(s) <= allowed
    # Coarser levels would not do, except where the quantizer has none, or its error jumps.
    assert error(s) >= 0.5 * CLOSE * allowed or s == 1 or error(0.8 * s) > allowed


def test_an_update_of_zeros_takes_one_level() -> None:
    for name in QUANTIZERS:
        assert levels_for_error(find(name), np.zeros(20, dtype=np.float32), 0.5, 0) == 1


def test_what_cannot_be_reached_takes_many_levels() -> None:
    x = update("dense")
    s = levels_for_error(find("uniform"), x, 1e-12, 7, LENGTHS, "l2")
    assert s > 10_000


@pytest.mark.parametrize("allowed", [0.8, 0.9])
def test_with_error_feedback_the_delay_is_used_up_also_near_the_whole_update(allowed: float) -> None:
    quantizer, x = find("fitted"), np.random.default_rng(1).standard_t(3, LENGTHS.sum()).astype(np.float32)
    s = levels_for_error(quantizer, x, allowed, 0, LENGTHS, "linf", balanced=True)
    error = error_share(quantizer, x, *quantizer.levels_for(s, LENGTHS, x, balanced=True), 0, LENGTHS, "linf")
    assert CLOSE * delay(allowed) <= delay(error) <= delay(allowed)
