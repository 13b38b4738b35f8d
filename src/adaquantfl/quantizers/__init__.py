"""Quantizers: an update becomes integers. `uniform` is the paper's."""

from .base import L2, LINF, NO_NORM, Count, MaxError, Number, Quantizer, Resolution, Traits
from .registry import find, names, register

__all__ = [
    "L2", "LINF", "NO_NORM", "Count", "MaxError", "Number", "Quantizer", "Resolution", "Traits", "find", "names",
    "register",
]  # fmt: skip
