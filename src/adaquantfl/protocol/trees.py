"""Reads the values of a state's tree, which a file or another process brought: ValueError or TypeError where one is
not what it must be, before any memory is taken for it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from .arrays import Layout, Model, Vector


def vector(value: Any) -> Vector:
    """Return a vector of finite float32 numbers."""
    array = np.asarray(value)
    if array.dtype.kind != "f" or array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"expected a vector of finite numbers, not {array.dtype.name} of shape {array.shape}")
    return array.astype(np.float32, copy=False)


def data(value: Any) -> bytes:
    """Return bytes. `bytes(value)` alone would make as many zeros as a number says."""
    return bytes(memoryview(value))


def number(value: Any) -> float:
    """Return a number, which may be NaN or infinite."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise TypeError(f"expected a number, not a {type(value).__name__}")
    float(plain)  # OverflowError where it is a whole number beyond float64
    return plain


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return numbers by name."""
    return {name: number(value) for name, value in values.items()}


def whole_number(value: Any, most: int = 2**32, least: int = 0) -> int:
    """Return a whole number within these bounds."""
    if isinstance(value, bool) or not least <= (found := operator.index(value)) <= most:
        raise ValueError(f"expected a whole number from {least} to {most:,}, not {str(value)[:20]!r}")
    return found


def model(tree: Mapping[str, Any], layout: Layout) -> Model:
    """Return the model of a tree, which has the arrays that the layout says."""
    found = Model(vector(tree["weights"]), vector(tree["buffers"]), data(tree["others"]))
    sizes = len(found.weights), len(found.buffers), len(found.others)
    expected = layout.dimension, layout.buffers, layout.other_bytes
    if sizes != expected or not layout.is_finite(found):
        raise ValueError(f"expected a finite model of the sizes {expected}, not {sizes}")
    return found
