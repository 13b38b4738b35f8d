"""Quantizers: an update becomes integers. `uniform` is the paper's."""

from .base import L2, LINF, NO_NORM, Number, Quantizer
from .registry import find, names, register

__all__ = ["L2", "LINF", "NO_NORM", "Number", "Quantizer", "find", "names", "register"]
