"""How a rule's number of levels, whole or not, becomes what a quantizer takes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..quantizers.registry import find
from ..quantizers.uniform import balanced_stretch, whole_levels
from ..quantizers.vectors import Stretch


def levels_of(
    update: npt.NDArray[np.float32], s: float, segments: npt.NDArray[np.int64] | None, config: Config
) -> tuple[int, Stretch]:
    """A number of levels, whole or not, as `compress` takes it with this configuration: s and stretch."""
    kind = find(config.quantizer)
    if not kind.follows_rule:
        return (config.sparsity if kind.name == "stc" else 1), 1.0
    if not kind.stretches:
        return min(max(1, math.floor(s + 0.5)), kind.most), 1.0
    if config.spread == "balanced" and segments is not None:
        whole, stretch = balanced_stretch(update, s, segments)
        return min(whole, kind.most), stretch
    whole, factor = whole_levels(s)
    return (whole, factor) if whole <= kind.most else (kind.most, 1.0)
