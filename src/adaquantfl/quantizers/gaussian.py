"""What a standard Gaussian is in a cell: the mean of N(0, 1) between two bounds, and the Lloyd-Max centroids."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

_REACH = 12.0  # beyond it there is nothing left of a Gaussian
_FAR = 30.0  # there a cell's mean is its near edge, within 1/30
_SMALL = 0.01  # cells for which the series is exact to 1e-9
_ROOT2 = math.sqrt(2.0)


def cell_mean(a: float, b: float) -> float:
    """E[z | a < z < b] for z from N(0, 1), 0 <= a < b.

    >>> round(cell_mean(0.0, math.inf), 6)  # sqrt(2 / pi)
    0.797885
    """
    if a > _FAR:
        return a
    density = math.exp(-a * a / 2) - math.exp(-b * b / 2)
    return math.sqrt(2 / math.pi) * density / (math.erfc(a / _ROOT2) - math.erfc(b / _ROOT2))


@lru_cache(maxsize=32)
def lloyd_max(count: int) -> npt.NDArray[np.float64]:
    """The `count` positive ones of 2 count centroids that quantize N(0, 1) with the least error (Lloyd 1957, Max 1960).

    Edges lie halfway between centroids, centroids at the mean of their cells.

    >>> lloyd_max(1).round(4).tolist(), lloyd_max(2).round(4).tolist()
    ([0.7979], [0.4528, 1.5104])
    """
    centres = np.linspace(0.0, 3.0, count + 1)[1:]
    while True:
        edges = [0.0, *((centres[1:] + centres[:-1]) / 2).tolist(), math.inf]
        better = np.array([cell_mean(a, b) for a, b in pairwise(edges)])
        if np.abs(better - centres).max() < 1e-10:
            return better
        centres = better


@lru_cache(maxsize=4096)
def step_means(step: float, count: int) -> npt.NDArray[np.float64]:
    """The means of N(0, 1) in the cells of width `step` around 0, step, 2 step, ..., count step.

    >>> step_means(1.0, 2).round(4).tolist()
    [0.0, 0.9206, 1.8481]
    """
    middles: npt.NDArray[np.float64] = step * np.arange(count + 1, dtype=np.float64)
    if step < _SMALL:
        return np.asarray(middles * (1 - step**2 / 12), dtype=np.float64)
    return np.array([0.0, *(cell_mean(middle - step / 2, middle + step / 2) for middle in middles[1:].tolist())])


@lru_cache(maxsize=4096)
def step_error(step: float) -> float:
    """E||Q(z) - z||^2 / E||z||^2 for z from N(0, 1) in cells of width `step`, put back at scaled means, unbiased.

    With c(z) the mean of z's cell, Q(z) = c(z) / E[c^2] is right on average, and its error is 1 / E[c^2] - 1.

    >>> round(step_error(1.0), 4), round(step_error(0.1), 6)
    (0.0833, 0.000833)
    """
    if step < 0.1:
        return step * step / 12
    kept = 0.0
    for k in range(1, math.ceil(_REACH / step) + 2):
        a, b = (k - 0.5) * step, (k + 0.5) * step
        share = math.erfc(a / _ROOT2) - math.erfc(b / _ROOT2)  # of both signs
        if share > 0:
            kept += share * cell_mean(a, b) ** 2
    return 1 / kept - 1 if kept > 0 else math.inf
