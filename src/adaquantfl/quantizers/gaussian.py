"""The standard Gaussian N(0, 1): means of cells, Lloyd-Max centroids, and the error of equal steps.

Frames are read with these numbers, so every machine must get the same ones. Two C libraries may differ in the last bit
of exp, log and erfc. So these are our own here, made of additions, multiplications, divisions and square roots alone,
which IEEE 754 defines to the last bit.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_REACH = 12.0  # beyond it there is nothing left of a Gaussian
_FAR = 30.0  # there a cell's mean is its near edge, within 1/30
_SHORT_TABLE = 256  # entries
_SMALL = 0.01  # cells for which the series is exact to 1e-9
_ROOT2, _ROOT_2_PI = math.sqrt(2.0), math.sqrt(2 / math.pi)
_LN2, _LN2_HIGH, _LN2_LOW = 0.6931471805599453, 0.693147180369123816490, 1.90821492927058770002e-10
_LEAST = -745.0  # exp of it is 0
# exp(x^2) erfc(x) / t is the sum of c_k T_k(2 t - 1), T_k of Chebyshev and t = 2 / (2 + x), for x from 0 to infinity.
# Computed with 60 digits from 200 values; what follows is below 1e-17.
_ERFCX = (
    0.5770337386164697, 0.3554369212704985, 0.06509515882878653, 0.003671142395836639,
    -0.0011128447433526325, -0.0001607582991537808, 3.278031574173137e-05, 5.442441645505016e-06,
    -1.5154665553171482e-06, -1.4297608181169865e-07, 8.234608827419493e-08, -1.2962846852306563e-09,
    -4.154721631015199e-09, 6.347058278362811e-10, 1.4320822712256225e-10, -6.160390105204585e-11,
    2.0612138554721698e-12, 3.5714931488477042e-12, -8.586422843251796e-13, -6.14560021379063e-14,
    7.418725748596617e-14, -1.2895042755032325e-14, -2.358726385710632e-15, 1.5729349381685912e-15,
    -2.2782966239546465e-16, -6.31233045075643e-17, 3.5916763531814925e-17,
)  # fmt: skip
# A first guess of the inverse upper tail, within 4.5e-4 (Abramowitz and Stegun 1964, 26.2.23).
_ABOVE, _BELOW = (2.515517, 0.802853, 0.010328), (1.0, 1.432788, 0.189269, 0.001308)


def exp(x: Floats) -> Floats:
    """e^x, for x that are not above 0.

    >>> float(exp(np.array([-1.0]))[0])
    0.36787944117144233
    """
    inside = np.maximum(x, _LEAST)
    k = np.rint(inside / _LN2)
    r = inside - k * _LN2_HIGH - k * _LN2_LOW
    series = np.ones_like(r)
    for n in range(14, 0, -1):
        series = 1.0 + r / n * series
    return np.where(x > _LEAST, np.ldexp(series, k.astype(np.int64)), 0.0)


def log(x: Floats) -> Floats:
    """The natural logarithm of positive numbers.

    >>> float(log(np.array([0.5]))[0])
    -0.6931471805599453
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < 1 / _ROOT2
    mantissa, exponent = np.where(low, 2 * mantissa, mantissa), exponent - low
    s = (mantissa - 1) / (mantissa + 1)
    series, square = np.zeros_like(s), s * s
    for n in range(23, 0, -2):
        series = series * square + 1 / n
    return np.asarray(exponent * _LN2 + 2 * s * series)


def scaled_tail(z: Floats) -> Floats:
    """2 P(N > z) e^(z^2 / 2), for z from 0 on.

    >>> float(scaled_tail(np.zeros(1))[0])
    1.0
    """
    t = 2 / (2 + np.asarray(z) / _ROOT2)
    u = 2 * t - 1
    later, latest = np.zeros_like(u), np.zeros_like(u)
    for c in _ERFCX[:0:-1]:  # Clenshaw
        later, latest = 2 * u * later - latest + c, later
    return np.asarray(t * (u * later - latest + _ERFCX[0]))


def upper_tail(z: Floats) -> Floats:
    """P(N > z), for z from 0 on."""
    return np.asarray(exp(-z * z / 2) * scaled_tail(z) / 2)


def inverse_tail(q: Floats) -> Floats:
    """The z with P(N > z) = q, for q from 1e-300 to 1/2.

    >>> inverse_tail(np.array([0.5, 0.025, 1e-15])).round(6).tolist()
    [0.0, 1.959964, 7.941345]
    """
    t = np.sqrt(-2 * log(q))
    above = _ABOVE[0] + t * (_ABOVE[1] + t * _ABOVE[2])
    below = _BELOW[0] + t * (_BELOW[1] + t * (_BELOW[2] + t * _BELOW[3]))
    z = np.maximum(t - above / below, 0.0)
    for _ in range(3):  # Newton's steps for the logarithm of the tail
        tail = scaled_tail(z) / 2
        z = np.maximum(z + tail * (log(tail) - z * z / 2 - log(q)) * math.sqrt(2 * math.pi), 0.0)
    return z


def cell_means(a: Floats, b: Floats) -> Floats:
    """E[z | a < z < b] for z from N(0, 1), 0 <= a < b.

    >>> cell_means(np.zeros(1), np.array([math.inf])).round(6).tolist()  # sqrt(2 / pi)
    [0.797885]
    """
    with np.errstate(invalid="ignore"):
        shrinks = exp((a - b) * (a + b) / 2)
    mass = scaled_tail(a) - shrinks * np.where(np.isfinite(b), scaled_tail(np.minimum(b, 1e9)), 0.0)
    return np.where(a > _FAR, a, _ROOT_2_PI * (1 - shrinks) / mass)


@lru_cache(maxsize=32)
def lloyd_max(count: int) -> Floats:
    """The `count` positive ones of 2 count centroids that quantize N(0, 1) with the least error (Lloyd 1957, Max 1960).

    Edges lie halfway between centroids, centroids at the mean of their cells.

    >>> lloyd_max(1).round(4).tolist(), lloyd_max(2).round(4).tolist()
    ([0.7979], [0.4528, 1.5104])
    """
    centres = np.linspace(0.0, 3.0, count + 1)[1:]
    while True:
        edges = np.concatenate([[0.0], (centres[1:] + centres[:-1]) / 2, [math.inf]])
        better = cell_means(edges[:-1], edges[1:])
        if np.abs(better - centres).max() < 1e-10:
            return better
        centres = better


def step_means(step: float, count: int) -> Floats:
    """Return the means of N(0, 1) in the cells of width `step` around 0, step, 2 step, ..., count step.

    Only short tables are kept, at most 2 MB of them: the arguments come from frames, which anybody can send.

    >>> step_means(1.0, 2).round(4).tolist()
    [0.0, 0.9206, 1.8481]
    """
    return _short_means(step, count) if count < _SHORT_TABLE else _means(step, count)


@lru_cache(maxsize=1024)
def _short_means(step: float, count: int) -> Floats:
    return _means(step, count)


def _means(step: float, count: int) -> Floats:
    middles: Floats = step * np.arange(count + 1, dtype=np.float64)
    if step < _SMALL:
        return np.asarray(middles * (1 - step * step / 12), dtype=np.float64)
    return np.append(0.0, cell_means(middles[1:] - step / 2, middles[1:] + step / 2))


def step_errors(steps: Floats) -> Floats:
    """E||Q(z) - z||^2 / E||z||^2 for z from N(0, 1) in cells of these widths, put back at scaled means, unbiased.

    With c(z) the mean of z's cell, Q(z) = c(z) / E[c^2] is right on average, and its error is 1 / E[c^2] - 1.

    >>> step_errors(np.array([1.0, 0.1])).round(6).tolist()
    [0.083324, 0.000833]
    """
    wide = np.maximum(steps, 0.1)[:, None]
    k = np.arange(1, math.ceil(_REACH / wide.min()) + 2)
    a, b = (k - 0.5) * wide, (k + 0.5) * wide
    inside = a < _FAR
    a, b = np.where(inside, a, 0.0), np.where(inside, b, 1.0)
    share = 2 * (upper_tail(a) - upper_tail(b))  # of both signs
    kept = np.where(inside & (share > 0), share * cell_means(a, b) ** 2, 0.0)
    total = np.array([math.fsum(row) for row in kept.tolist()])
    with np.errstate(divide="ignore"):
        return np.where(steps < 0.1, steps * steps / 12, 1 / total - 1)
