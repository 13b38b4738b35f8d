"""How a rule's number of levels, whole or not, becomes what a quantizer takes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .centroid import like_uniform
from .registry import Quantizer
from .uniform import whole_levels


def by_rule(kind: Quantizer, s: float, lengths: npt.NDArray[np.int64]) -> tuple[int, float]:
    """s and stretch for a quantizer that a rule drives, on segments of these lengths.

    >>> from adaquantfl.quantizers.registry import find
    >>> by_rule(find("uniform"), 0.5, np.array([10_000])), by_rule(find("eden"), 99.0, np.array([10_000]))
    ((1, 2.0), (16, 1.0))
    >>> by_rule(find("nearest"), 0.5, np.array([10_000]))
    (1, 1.0)
    """
    if kind.feedback:
        s = max(s, 1.0)  # in steps of twice the norm everything would be rounded to 0, round after round
    if not kind.stretches:
        return min(max(1, math.floor(s + 0.5)), kind.most), 1.0
    whole, stretch = like_uniform(s, lengths) if kind.name == "centroid" else whole_levels(s)
    return (whole, float(stretch)) if whole <= kind.most else (kind.most, 1.0)
