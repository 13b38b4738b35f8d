"""How a rule's number of levels, whole or not, becomes what a quantizer takes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..quantizers.centroid import like_uniform
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
    balanced = config.spread == "balanced" and segments is not None
    if kind.name == "centroid":
        lengths = np.array([len(update)]) if segments is None else segments
        whole, stretch = like_uniform(s, lengths, balanced)
    elif balanced:
        assert segments is not None
        whole, stretch = balanced_stretch(update, s, segments)
    else:
        whole, stretch = whole_levels(s)
    if whole <= kind.most:
        return whole, stretch
    return kind.most, stretch if balanced else 1.0
