"""Differential privacy around the strategy: what is aggregated keeps the norm that the noise is calibrated to.

With clipping on the clients, a quantized update can be longer than the clipped one that it stands for. The server
therefore clips every client's quantized arrays again after decoding, so that all arrays together keep the norm. What
travels as it is, such as BatchNorm's statistics, is as the client clipped it: it counts, and stays. Arrays without
dimensions, such as BatchNorm's counter, do not count, because Flower's own clip does not scale them: their steps would
make the whole update shorter in every round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ..protocol.arrays import AnyArray

_MARGINS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5)  # arrays of narrow types may be longer when they are rounded


def clipped(
    arrays: Mapping[str, AnyArray], model: Mapping[str, AnyArray], bound: float, exact: Collection[str] = ()
) -> tuple[dict[str, AnyArray], float]:
    """Move arrays towards the model's until their distance is at most the bound.

    Args:
        arrays: a client's.
        model: the arrays that it started from.
        bound: of the l2 norm of the change.
        exact: names of arrays that stay as they are. They count, except for those without dimensions.

    Returns:
        The arrays, and the share of the change that is left: 1 where nothing had to be done.
    """
    wide = {name: array.astype(np.float64) for name, array in model.items() if name not in exact}
    kept = _norm({name: arrays[name].astype(np.float64) - model[name] for name in exact if model[name].shape})
    bound = float(np.sqrt(max(bound * bound - kept * kept, 0.0)))
    moved = {name: arrays[name].astype(np.float64) - array for name, array in wide.items()}
    norm = _norm(moved)
    if norm <= bound:
        return dict(arrays), 1.0
    for margin in _MARGINS:
        share = (1.0 - margin) * bound / norm
        found = {name: _towards(model[name], wide[name], share * change) for name, change in moved.items()}
        if _norm({name: array.astype(np.float64) - wide[name] for name, array in found.items()}) <= bound:
            return {**arrays, **found}, share
    return {**arrays, **{name: model[name] for name in wide}}, 0.0


def _norm(moved: Mapping[str, AnyArray]) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(array))) for array in moved.values())))


def _towards(model: AnyArray, wide: AnyArray, change: AnyArray) -> AnyArray:
    """The model's array with a change, in its own type. Integers change by whole numbers, and never by more."""
    if model.dtype.kind in "iub":
        change = np.trunc(change)
    return np.asarray(wide + change).astype(model.dtype)
