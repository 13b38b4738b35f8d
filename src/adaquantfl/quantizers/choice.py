"""The coarsest levels with an error that is allowed: found from the update itself, by measuring.

The error is E||Q(x) - x||^2 / ||x||^2, the noise as a share of the update's energy. It falls as s grows, between s^-1
and s^-2, so that a few steps of a secant search in the logarithms find s. With error feedback an error D is a delay of
D / (1 - D) rounds. The search is then for that delay: errors of 0.8 and 0.9 are far apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..theory import MAX_LEVELS
from .base import LINF, Quantizer
from .levels import quantize
from .segments import Segments
from .vectors import Stretch, square_sums

LEAST_LEVELS = 2.0**-20
CLOSE = 0.85  # of the error that is allowed: near enough, a finer search saves little


def error_share(
    quantizer: Quantizer,
    x: npt.NDArray[np.float32],
    s: int,
    stretch: Stretch,
    key: int,
    segments: npt.NDArray[np.int64] | None,
    norm: str,
) -> float:
    """The quantizer's error as a share of ||x||^2: exact where there is a closed form, else that of this draw.

    >>> from adaquantfl.quantizers import find
    >>> error_share(find("uniform"), np.array([3, 4], dtype=np.float32), 5, 1.0, 0, None, "l2")
    0.0
    """
    exact = quantizer.error_share(x, s, key, stretch, segments, norm)
    if exact is not None:
        return exact
    return quantizer.drawn_error(x, quantize(x, s, key, segments, stretch, quantizer, norm or None))


def levels_for_error(
    quantizer: Quantizer,
    x: npt.NDArray[np.float32],
    allowed: float,
    key: int,
    segments: npt.NDArray[np.int64] | None = None,
    norm: str = "",
    balanced: bool = False,
) -> float:
    """The coarsest number of levels, not necessarily whole, whose error is at most `allowed`; see `levels_for`.

    >>> from adaquantfl.quantizers import find
    >>> x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    >>> s = levels_for_error(find("uniform"), x, 0.5, key=0, norm="l2")
    >>> error = error_share(find("uniform"), x, *find("uniform").levels_for(s, np.array([10_000])), 0, None, "l2")
    >>> 0.4 <= error <= 0.5
    True
    """
    runs = np.array([len(x)]) if segments is None else segments
    energies = square_sums(x, Segments.of(segments, len(x)))
    if not energies.any():
        return 1.0

    def levels(s: float) -> tuple[int, Stretch]:
        return quantizer.levels_for(s, runs, x, balanced)

    def measure(s: float) -> float:
        error = error_share(quantizer, x, *levels(s), key, segments, norm)
        return delay(error) if quantizer.feedback else error

    def expect(s: float) -> float:
        return quantizer.expected_error(*levels(s), energies)

    # Steps of sqrt(12 allowed) rms have that error, if they are small.
    largest = float(np.abs(x).max()) if norm == LINF else math.sqrt(energies.sum())
    rms = math.sqrt(energies.sum() / len(x))
    first = largest / rms / min(math.sqrt(12 * allowed), 3.0)
    least = quantizer.least if quantizer.feedback else LEAST_LEVELS
    if not math.isnan(expect(first)):
        first = _coarsest(expect, allowed, first, least, trials=30)
    return _coarsest(measure, delay(allowed) if quantizer.feedback else allowed, first, least, trials=8)


def levels_for_resolution(x: npt.NDArray[np.float32], resolution: float) -> int:
    """FedDQ's levels: the range of x divided by the resolution, rounded up to whole bits.

    >>> levels_for_resolution(np.array([-3, 1], dtype=np.float32), 0.5)  # 8 steps: 3 bits
    6
    """
    span = float(x.max()) - float(x.min())
    bits = math.ceil(math.log2(max(span / resolution, 2.0)))
    step = span / (2**bits - 1)
    return min(max(1, math.ceil(float(np.abs(x).max()) / step)), MAX_LEVELS) if step else 1


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
