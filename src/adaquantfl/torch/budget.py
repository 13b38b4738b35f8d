"""The finest levels that fit into a number of bits for each element: what a slow link allows, whatever the error.

Steps are one multiple of each tensor's root mean square, so that every tensor sends about the same share of its
elements. The multiple comes from the entropy of a sample; the frame itself is then measured, and the multiple mended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..codecs.coding import encode
from ..errors import ConfigError
from ..protocol.arrays import Vector
from ..quantizers.levels import Levels, quantize
from ..quantizers.segments import Segments
from ..quantizers.vectors import largest, square_sums
from ..theory import MAX_LEVELS

SAMPLE = 2**17  # elements, spread over the vector
FINEST, COARSEST = 2.0**-6, 2.0**6  # steps, in root mean squares
CLOSE = 0.97  # of the budget: near enough
SPARSE_SLOPE = 5.0  # a step that is 1 % larger makes a sparse frame about 5 % smaller
TRIALS = 8


def within(vector: Vector, lengths: Sequence[int], bits: float, quantizer: str) -> tuple[Levels, bytes]:
    """The levels and their frame, of at most `bits` for each element. ConfigError where that cannot be.

    >>> x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    >>> levels, frame = within(x, [60_000, 40_000], 0.14, "fitted")
    >>> 0.12 < 8 * len(frame) / len(x) <= 0.14
    True
    """
    segments = np.asarray(lengths, dtype=np.int64)
    parts = Segments.of(segments, len(vector))
    rms = np.sqrt(square_sums(vector, parts) / segments)
    top = largest(vector, parts).astype(np.float64)
    step, best = _step(vector, parts, rms, bits), None
    slope = min(SPARSE_SLOPE, 1 / (bits * math.log(2)))  # above a bit, half the step takes a bit more
    for trial in range(1, 2 * TRIALS + 1):
        steps = np.where(rms > 0, step * rms, 1.0)
        s = min(max(math.ceil((top / steps).max()), 1), MAX_LEVELS)
        stretch = np.maximum(np.divide(s * steps, top, out=np.ones_like(top), where=top > 0), 1.0)
        levels = quantize(vector, s, 0, segments, stretch, quantizer)
        frame = encode(levels)
        used = 8 * len(frame) / (bits * len(vector))
        if used <= 1 and (best is None or len(frame) > len(best[1])):
            best = levels, frame
        if CLOSE <= used <= 1 or step == COARSEST or (best and trial >= TRIALS):
            break
        step = min(max(step * (used / math.sqrt(CLOSE)) ** (1 / slope), FINEST), COARSEST)
    if best is None:
        least = 8 * len(frame) / len(vector)
        raise ConfigError(
            f"bits = {bits:g}: {len(lengths)} tensors of {len(vector):,} elements take {least:.3g} "
            "bits per element with hardly anything in them, for headers and scales alone. Give more bits, or an error."
        )
    return best


def _step(vector: Vector, parts: Segments, rms: npt.NDArray[np.float64], bits: float) -> float:
    """The step, in root mean squares, with which the entropy of a sample is the budget."""
    every = -(-len(vector) // SAMPLE) | 1  # odd, so that it does not stay in some columns of a matrix
    edges = zip(pairwise(parts.offsets.tolist()), rms.tolist(), strict=True)
    sizes = np.concatenate([np.abs(vector[a:b:every]) / (scale or 1.0) for (a, b), scale in edges])
    low, high = math.log2(FINEST), math.log2(COARSEST)
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if _entropy(sizes / 2**middle) <= bits else (middle, high)
    return float(2**high)


def _entropy(sizes: npt.NDArray[np.floating]) -> float:
    """Bits for each element of levels round(sizes) with a sign."""
    counts = np.bincount(np.rint(sizes).astype(np.int64))
    shares = counts[counts > 0] / len(sizes)
    return float(1 - counts[0] / len(sizes) - np.sum(shares * np.log2(shares)))
