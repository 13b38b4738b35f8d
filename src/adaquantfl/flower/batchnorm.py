"""BatchNorm's means and variances among arrays that have only numbers for names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..protocol.arrays import AnyArray
from ..protocol.bfloat16 import widened


def statistics_by_place(arrays: Mapping[str, AnyArray]) -> list[str]:
    """The names of the statistics.

    PyTorch: (weight, bias,) running_mean, running_var, and an integer, num_batches_tracked. Keras, and PyTorch without
    the integers: gamma, beta, mean and variance of one length, perhaps after a bias. A variance is above 0 everywhere;
    a bias, as at the end of two LayerNorms, is not.
    """
    items = [(name, widened(array)) for name, array in arrays.items()]
    counters = [place for place, (_, array) in enumerate(items) if array.shape == () and array.dtype.kind == "i"]
    if counters:
        pairs = [items[place - 2 : place] for place in counters if place >= 2]
        return [name for pair in pairs if _alike(*pair) for name, _ in pair]
    found, run = list[str](), list[tuple[str, AnyArray]]()
    for item in [*items, ("", np.empty((0, 0)))]:
        if run and not _alike(run[-1], item):
            if len(run) >= 4 and bool((run[-1][1] > 0).all()):
                found += [run[-2][0], run[-1][0]]
            run = []
        run.append(item)
    return found


def _alike(one: tuple[str, AnyArray], other: tuple[str, AnyArray]) -> bool:
    """Two vectors of floats of one length."""
    a, b = one[1], other[1]
    return a.ndim == b.ndim == 1 and a.shape == b.shape and a.dtype.kind == b.dtype.kind == "f"
