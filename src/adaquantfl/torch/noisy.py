"""A vector to a frame whose noise averages out over the processes: chosen by the noise, or by a budget of bits.

The quantizer is `centroid` with balanced levels: small tensors get finer ones, which cost next to nothing. It has
nearly no bias where many elements share a tensor's energy. A tensor with its energy in few elements comes back biased.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..codecs.coding import encode, quantize_within
from ..errors import ConfigError
from ..protocol.arrays import Vector
from ..quantizers.base import Count
from ..quantizers.choice import LEAST_LEVELS
from ..quantizers.levels import quantize
from ..quantizers.registry import find
from ..theory import MAX_LEVELS

QUANTIZER = find("centroid")
CLOSE = 0.97  # of the budget: near enough
TRIALS = 16
PROPORTIONAL = 4  # trials in which bytes are taken to grow as s does; then the range of s is halved
BITS_PER_NONZERO = 8.0  # about what a frame takes for a level that is not 0; the first guess


def within_noise(vector: Vector, lengths: Sequence[int], noise: float, key: int) -> bytes:
    """The smallest frame whose squared error is at most `noise` times the vector's energy.

    >>> from adaquantfl import decode
    >>> x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    >>> y = decode(within_noise(x, [60_000, 40_000], 4.0, key=1)).dequantize()
    >>> bool(3.0 < np.sum((y - x) ** 2) / np.sum(x**2) < 4.1)
    True
    """
    return encode(quantize_within(vector, noise, key, lengths, QUANTIZER))


def within_bits(vector: Vector, lengths: Sequence[int], bits: float, key: int) -> bytes:
    """The finest frame of at most `bits` bits per element. ConfigError where headers alone take more.

    >>> x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    >>> 0.12 < 8 * len(within_bits(x, [60_000, 40_000], 0.14, key=1)) / len(x) <= 0.14
    True
    """
    segments, budget = np.asarray(lengths, dtype=np.int64), bits * len(vector) / 8
    fits, too_fine = LEAST_LEVELS, float(MAX_LEVELS)
    s = 8 * budget / BITS_PER_NONZERO / float(np.sqrt(2 / np.pi * segments).sum())
    best: bytes | None = None
    for trial in range(TRIALS):
        s = min(max(s, LEAST_LEVELS), float(MAX_LEVELS))
        frame = _frame(vector, segments, s, key)
        used = len(frame) / budget
        if used <= 1:
            best, fits = frame, s
            if used >= CLOSE or s == MAX_LEVELS:
                break
        else:
            too_fine = s
        s *= math.sqrt(CLOSE) / used  # while few levels are not 0, bytes grow about as s does
        if not fits < s < too_fine or (best is None and trial >= PROPORTIONAL):
            s = math.sqrt(fits * too_fine)
    if best is not None:
        return best
    least = _frame(vector, segments, LEAST_LEVELS, key)
    if len(least) <= budget:
        return least
    raise ConfigError(
        f"bits = {bits:g}: {len(segments)} tensors of {len(vector):,} elements take {8 * len(least) / len(vector):.3g} "
        "bits per element with hardly anything in them, for headers and scales alone. Give more bits, or `noise`."
    )


def _frame(vector: Vector, segments: np.ndarray, s: float, key: int) -> bytes:
    whole, stretch = QUANTIZER.levels_for(Count(s), segments, vector, balanced=True)
    return encode(quantize(vector, whole, key, segments, stretch, QUANTIZER))
