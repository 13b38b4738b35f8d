"""How a rule's number of levels, whole or not, becomes what the configuration's quantizer takes for an update."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..quantizers.by_rule import by_rule
from ..quantizers.centroid import like_uniform
from ..quantizers.registry import find
from ..quantizers.uniform import balanced_stretch
from ..quantizers.vectors import Stretch
from ..runs.config import Config


def levels_of(
    update: npt.NDArray[np.float32], s: float, segments: npt.NDArray[np.int64] | None, config: Config
) -> tuple[int, Stretch]:
    """A number of levels, whole or not, as `compress` takes it with this configuration: s and stretch."""
    kind = find(config.quantizer)
    if not kind.follows_rule:
        return (config.sparsity if kind.name == "stc" else 1), 1.0
    if config.spread != "balanced" or segments is None or not kind.stretches:
        return by_rule(kind, s, np.array([len(update)]) if segments is None else segments)
    if kind.name == "centroid":
        whole, stretch = like_uniform(s, segments, balanced=True)
    else:
        whole, stretch = balanced_stretch(update, s, segments)
    return min(whole, kind.most), stretch
