"""How a rule's number of levels, whole or not, becomes what the configuration's quantizer takes for an update."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..quantizers.registry import find
from ..quantizers.vectors import Stretch
from ..runs.config import Config


def levels_of(
    update: npt.NDArray[np.float32], s: float, segments: npt.NDArray[np.int64] | None, config: Config
) -> tuple[int, Stretch]:
    """A number of levels, whole or not, as `compress` takes it with this configuration: s and stretch."""
    kind = find(config.quantizer)
    wanted = getattr(config, kind.own_levels) if kind.own_levels else s
    lengths = np.array([len(update)]) if segments is None else segments
    return kind.levels_for(wanted, lengths, update, config.balanced)
