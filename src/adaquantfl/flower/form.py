"""The form of an app's model: arrays that are tied, and BatchNorm's statistics where arrays have no names.

Tied weights are one array under two names. If each copy were quantized with noise of its own, the copies would differ.
So they travel once, and the copies are made again on the other side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocol.arrays import AnyArray, Weights
from ..protocol.bfloat16 import widened

_TIED, _TIED_TO, _TIED_AT = "tied", "tied-to", "tied-at"  # entries of our record


@dataclass(frozen=True)
class Form:
    """copies: (place in the model, name, the array that it is a copy of), in the order of places."""

    copies: tuple[tuple[int, str, str], ...] = ()

    @staticmethod
    def of(arrays: Mapping[str, AnyArray]) -> Form:
        """Arrays of floats that are equal in every bit are tied, unless all their elements are the same."""
        first: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        copies = []
        for place, (name, array) in enumerate(arrays.items()):
            values = widened(array)
            if values.dtype.kind != "f" or values.size < 2 or bool((values == values.flat[0]).all()):
                continue
            key = str(array.dtype), array.shape, array.tobytes()
            if key in first:
                copies.append((place, name, first[key]))
            first.setdefault(key, name)
        return Form(tuple(copies))

    @staticmethod
    def of_settings(plan: Mapping[str, Any]) -> Form:
        """From our record in a message."""
        columns = (plan.get(key, ()) for key in (_TIED_AT, _TIED, _TIED_TO))
        return Form(tuple(zip(*columns, strict=True)))

    @property
    def settings(self) -> dict[str, Any]:
        """For our record in a message."""
        if not self.copies:
            return {}
        places, names, originals = (list(column) for column in zip(*self.copies, strict=True))
        return {_TIED_AT: places, _TIED: names, _TIED_TO: originals}

    def apart(self, arrays: Mapping[str, AnyArray]) -> str:
        """The name of a copy that is not equal to its original any more; empty where there is none."""
        for _, name, original in self.copies:
            there = name in arrays and original in arrays
            if not there or not np.array_equal(widened(arrays[name]), widened(arrays[original])):
                return name
        return ""

    def once(self, arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """The arrays without the copies."""
        names = {name for _, name, _ in self.copies}
        return {name: array for name, array in arrays.items() if name not in names}

    def whole(self, arrays: Weights) -> dict[str, AnyArray]:
        """The arrays with the copies, in the model's order."""
        assert isinstance(arrays, Mapping)  # our models have names
        items = list(arrays.items())
        for place, name, original in self.copies:
            items.insert(place, (name, arrays[original]))
        return dict(items)


def only_numbers(names: Sequence[str]) -> bool:
    """Whether arrays were given without names: Flower numbers them."""
    return all(name.isdecimal() for name in names)


def statistics_by_place(arrays: Mapping[str, AnyArray]) -> list[str]:
    """The names of BatchNorm's means and variances among arrays that have only numbers for names.

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
