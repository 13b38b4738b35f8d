"""Levels chosen from a vector itself: the coarsest within an error, or those of a resolution.

The error is E||Q(x) - x||^2 / ||x||^2, the noise as a share of the vector's energy. It falls as s grows, between s^-1
and s^-2, so that a few steps of a secant search in the logarithms find s. With error feedback an error D is a delay of
D / (1 - D) rounds. The search is then for that delay: errors of 0.8 and 0.9 are far apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..errors import QuantizeError
from ..theory import MAX_LEVELS
from .base import L2, LINF, Count, MaxError, Quantizer, Resolution, Vector
from .levels import Levels, quantize
from .segments import Segments
from .vectors import Stretch, energy, square_sums

LEAST_LEVELS = 2.0**-20
CLOSE = 0.85  # of the error that is allowed: near enough, a finer search saves little


def exact_error(
    quantizer: Quantizer, x: Vector, s: int, stretch: Stretch, segments: npt.NDArray[np.int64] | None, norm: str
) -> float | None:
    """The expected error as a share of ||x||^2 where there is a closed form, for the paper's quantizer; None elsewhere.

    >>> from adaquantfl.quantizers import find
    >>> exact_error(find("uniform"), np.array([3, 4], dtype=np.float32), 5, 1.0, None, "l2")
    0.0
    """
    if not quantizer.traits.from_paper or norm != L2:
        return None
    from .uniform import expected_error

    return expected_error(x, s, stretch, segments)


def drawn_error(x: Vector, levels: Levels) -> float:
    """||Q(x) - x||^2 / ||x||^2 of these levels; 0 where x is 0."""
    whole = energy(x)
    return energy(levels.remainder(x)) / whole if whole else 0.0


def levels_within(
    quantizer: Quantizer,
    target: MaxError | Resolution,
    segments: npt.NDArray[np.int64],
    x: Vector | None,
    balanced: bool,
    key: int,
    norm: str,
) -> tuple[int, Stretch]:
    """What `Quantizer.levels_for` returns for a target that depends on the vector.

    >>> from adaquantfl.quantizers import find
    >>> x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    >>> s, stretch = find("uniform").levels_for(MaxError(0.5), np.array([10_000]), x, norm="l2")
    >>> 0.4 <= exact_error(find("uniform"), x, s, stretch, None, "l2") <= 0.5
    True
    """
    if x is None:
        raise QuantizeError(f"{target} depends on the vector: pass it as x.")

    def levels(s: float) -> tuple[int, Stretch]:
        return quantizer.levels_for(Count(s), segments, x, balanced)

    if isinstance(target, Resolution):
        return levels(levels_for_resolution(x, target.step))
    energies, traits = square_sums(x, Segments.of(segments, len(x))), quantizer.traits
    if not energies.any():
        return levels(1.0)

    def measure(s: float) -> float:
        whole, stretch = levels(s)
        error = exact_error(quantizer, x, whole, stretch, segments, norm)
        if error is None:
            error = quantizer.error_of(x, quantize(x, whole, key, segments, stretch, quantizer, norm or None))
        return delay(error) if traits.feedback else error

    # Steps of sqrt(12 error) rms have that error, if they are small.
    allowed = target.error
    largest = max(float(x.max()), -float(x.min())) if norm == LINF else math.sqrt(energies.sum())
    rms = math.sqrt(energies.sum() / len(x))
    first = largest / rms / min(math.sqrt(12 * allowed), 3.0)
    least = traits.least if traits.feedback else LEAST_LEVELS
    if not math.isnan(quantizer.expected_error(1, 1.0, energies)):  # so start from there
        first = _coarsest(lambda s: quantizer.expected_error(*levels(s), energies), allowed, first, least, trials=30)
    return levels(_coarsest(measure, delay(allowed) if traits.feedback else allowed, first, least, trials=8))


def levels_for_resolution(x: Vector, step: float) -> float:
    """FedDQ's number of levels: the bits that the range of the elements takes in steps of this size, rounded up.

    >>> levels_for_resolution(np.array([-3, 1], dtype=np.float32), 0.5)  # 8 steps: 3 bits
    6
    """
    highest, lowest = float(x.max()), float(x.min())
    span = highest - lowest
    bits = math.ceil(math.log2(max(span / step, 2.0)))
    each = span / (2**bits - 1)
    return min(max(1, math.ceil(max(highest, -lowest) / each)), MAX_LEVELS) if each else 1


def delay(error: float) -> float:
    """How many rounds later what is left out arrives on average, with error feedback; 1e6 where nothing is sent.

    >>> [round(delay(error), 3) for error in (0.0, 0.5, 0.9)]
    [0.0, 1.0, 9.0]
    """
    return error / max(1 - error, 1e-6)


def _coarsest(error_of: Callable[[float], float], allowed: float, first: float, least: float, trials: int) -> float:
    """The smallest s that was tried and whose error is allowed; the last one where none is."""
    s, best, too_few = min(max(first, least), float(MAX_LEVELS)), math.inf, 0.0
    before: tuple[float, float] | None = None
    for _ in range(trials):
        error = error_of(s)
        if error <= allowed:
            best = min(best, s)
            if error >= CLOSE * allowed or s <= least:
                break
        else:
            too_few = max(too_few, s)
        slope = -1.5
        if before is not None and before[0] != s and min(before[1], error) > 0:
            slope = min(max(math.log(error / before[1]) / math.log(s / before[0]), -8.0), -0.5)
        before = s, error
        aim = math.sqrt(CLOSE) * allowed
        factor = min(max((max(error, 1e-12) / aim) ** (-1 / slope), 1 / 64), 64.0)
        after = min(max(s * factor, least), float(MAX_LEVELS))
        if too_few and math.isfinite(best) and not too_few < after < best:
            after = math.sqrt(too_few * best)
        if after == s:
            break
        s = after
    return best if math.isfinite(best) else s
