"""Noise from a ChaCha20 stream that the operating system keyed: Skellam's whole numbers, and rounded Gaussian ones.

A table of whole weights of 2^62 in all is searched with 62 random bits, so that every probability is right to about one
part in 10^14, and what is beyond the table has a probability below 2^-60.
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ive, ndtri

from .masks import stream

_BITS = 62


def skellam(count: int, variance: float) -> npt.NDArray[np.int64]:
    """Independent differences of two Poisson numbers with half the variance each: they add up to such numbers again."""
    below, table = _skellam_table(variance)
    words = np.frombuffer(stream(os.urandom(32), 8 * count), dtype="<u8") >> np.uint64(64 - _BITS)
    return np.searchsorted(table, words, side="right").astype(np.int64) - below


def gaussian(count: int, deviation: float) -> npt.NDArray[np.float64]:
    """Independent Gaussian numbers."""
    words = np.frombuffer(stream(os.urandom(32), 8 * count), dtype="<u8") >> np.uint64(11)
    numbers: npt.NDArray[np.float64] = deviation * ndtri((words.astype(np.float64) + 0.5) * 2.0**-53)
    return numbers


@lru_cache(maxsize=4)
def _skellam_table(variance: float) -> tuple[int, npt.NDArray[np.uint64]]:
    """Minus the least number in the table, and the cumulated weights."""
    reach = int(12 * variance**0.5 + 60)
    places = np.arange(-reach, reach + 1)
    weights = np.floor(ive(np.abs(places), variance) * 2.0**_BITS).astype(np.uint64)
    weights[reach] = int(weights[reach]) + 2**_BITS - int(weights.sum())
    return reach, np.cumsum(weights)
