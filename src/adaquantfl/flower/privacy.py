"""Differential privacy around the strategy: what is aggregated keeps the norm that the noise is calibrated to.

With clipping on the clients, a quantized update can be longer than the clipped one that it stands for. The server
therefore clips every client's arrays again after decoding. All arrays that are averaged count, integers too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType

import numpy as np
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from ..errors import ConfigError
from ..protocol.arrays import AnyArray

CLIENT_SIDE = (DifferentialPrivacyClientSideFixedClipping, DifferentialPrivacyClientSideAdaptiveClipping)
WRAPPERS = (
    *CLIENT_SIDE,
    DifferentialPrivacyServerSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
)
_MARGINS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5)  # arrays of narrow types may be longer when they are rounded


def chain(strategy: object) -> Iterator[object]:
    """A strategy, the one that it wraps, and so on."""
    seen: list[object] = []
    while isinstance(strategy, Strategy) and not any(strategy is one for one in seen):
        seen.append(strategy)
        yield strategy
        strategy = vars(strategy).get("strategy")


def clipping_norm(strategy: Strategy) -> float | None:
    """The norm to which the clients clip now; None where no wrapper asks them to."""
    norms = [float(one.clipping_norm) for one in chain(strategy) if isinstance(one, CLIENT_SIDE)]
    return min(norms, default=None)


def clipped(
    arrays: Mapping[str, AnyArray], model: Mapping[str, AnyArray], bound: float
) -> tuple[dict[str, AnyArray], bool]:
    """The arrays moved towards the model's until their distance is at most the bound, and whether they had to be."""
    wide = {name: array.astype(np.float64) for name, array in model.items()}
    moved = {name: array.astype(np.float64) - wide[name] for name, array in arrays.items()}
    norm = _norm(moved)
    if norm <= bound:
        return dict(arrays), False
    for margin in _MARGINS:
        factor = (1.0 - margin) * bound / norm
        found = {name: _towards(model[name], wide[name], factor * change) for name, change in moved.items()}
        if _norm({name: array.astype(np.float64) - wide[name] for name, array in found.items()}) <= bound:
            return found, True
    return dict(model), True


def refuse_outer(strategy: Strategy) -> None:
    """ConfigError where a wrapper for differential privacy is around this strategy: it would see quantized replies.

    Flower does not tell a strategy who wraps it, so that the callers are looked through.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, WRAPPERS) and any(one is strategy for one in chain(caller)):
            name = type(caller).__name__
            raise ConfigError(
                f"{name} is around AdaQuantStrategy, where it cannot clip: replies are quantized there. Put it inside: "
                f"AdaQuantStrategy({name}(FedAvg(), ...))."
            )
        frame = frame.f_back


def _norm(moved: Mapping[str, AnyArray]) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(array))) for array in moved.values())))


def _towards(model: AnyArray, wide: AnyArray, change: AnyArray) -> AnyArray:
    """The model's array with a change, in its own type. Integers change by whole numbers, and never by more."""
    if model.dtype.kind in "iub":
        change = np.trunc(change)
    return np.asarray(wide + change).astype(model.dtype)
