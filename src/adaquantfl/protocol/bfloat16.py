"""bfloat16 in NumPy, which has no such type: values of two bytes, the upper half of a float32.

The package ml_dtypes has the type. Without it, and in arrays that were saved and loaded, values are voids of two bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

NAME = "bfloat16"


def dtype() -> np.dtype[Any]:
    """The type of arrays that are handed out."""
    try:
        from ml_dtypes import bfloat16  # optional
    except ImportError:
        return np.dtype("V2")
    found: np.dtype[Any] = np.dtype(bfloat16)
    return found


def name_of(kind: np.dtype[Any]) -> str:
    """NumPy's name of a type; two bytes without a type are bfloat16."""
    return NAME if kind == np.dtype("V2") else kind.name


def widened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of bfloat16 in float32, which holds all its values; any other array as it is.

    >>> widened(np.array([0x3F80, 0xC000], dtype="u2").view("V2"))
    array([ 1., -2.], dtype=float32)
    """
    if name_of(array.dtype) != NAME:
        return array
    return of_bits(np.ascontiguousarray(array).view(np.uint16)).reshape(array.shape)


def narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers as bfloat16, rounded to the nearest, ties to even.

    >>> widened(narrowed(np.array([1.0, 1.001, -2.5])))
    array([ 1. ,  1. , -2.5], dtype=float32)
    """
    return bits_of(values).reshape(np.shape(values)).view(dtype())


def bits_of(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Return the bits of numbers as bfloat16, rounded to the nearest, ties to even."""
    wide = np.ascontiguousarray(values, dtype=np.float32)
    bits = wide.view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.where(np.isnan(wide), np.uint32(0x7FC00000), bits + half)
    return (rounded >> np.uint32(16)).astype(np.uint16)


def of_bits(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return the float32 values of bfloat16 numbers."""
    wide = bits.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)
