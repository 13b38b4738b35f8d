"""How many bytes the sparse code would take, without encoding."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .frame import TILE
from .kernels import nonzeros
from .kernels import sparse as kernels

ESTIMATE_BLOCK = 256
LEAST_SHIFT = TILE.bit_length() - 1
_SHARES = np.arange(1, ESTIMATE_BLOCK) / ESTIMATE_BLOCK
_ENTROPIES = np.zeros(ESTIMATE_BLOCK + 1)  # of a block with this many non-zeros, in bits
_ENTROPIES[1:-1] = -ESTIMATE_BLOCK * (_SHARES * np.log2(_SHARES) + (1 - _SHARES) * np.log2(1 - _SHARES))
_FILLED = 4096  # non-zeros in a chunk at least, on average: the directory then takes 0.1 % of the body


def least_size(values: npt.NDArray[np.signedinteger], counts: npt.NDArray[np.int64]) -> int:
    """Bytes that the body of a vector of one chunk has at the very least; counts: the histogram of its levels."""
    return 2 - int(-kernels.least_bits(values, counts) // 8)


def estimate_size(
    nonzeros_per_block: npt.NDArray[np.int64], magnitude_counts: npt.NDArray[np.int64], dimension: int
) -> float:
    """Bytes of the body, without encoding; close where the density is even within a block, else a little too high.

    nonzeros_per_block: for each ESTIMATE_BLOCK elements. magnitude_counts: how many levels have magnitude 0, 1, 2, ...
    """
    # Neighbouring blocks together until the density shows through the noise.
    group = np.cumsum(nonzeros_per_block) // 64
    marked = np.bincount(group, weights=nonzeros_per_block)
    things = np.bincount(group, weights=np.minimum(ESTIMATE_BLOCK, dimension - ESTIMATE_BLOCK * np.arange(len(group))))
    return _size(_golomb_bits(things, marked), magnitude_counts, dimension)


def least_estimate(
    nonzeros_per_block: npt.NDArray[np.int64], magnitude_counts: npt.NDArray[np.int64], dimension: int
) -> float:
    """At most what `estimate_size` is, in a fraction of the time: gaps take at least the entropy of their blocks."""
    whole = nonzeros_per_block[: dimension // ESTIMATE_BLOCK]  # a short last block would count as a long one
    return _size(float(_ENTROPIES[whole].sum()), magnitude_counts, dimension)


def nonzeros_per_block(values: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.int64]:
    """How many of each ESTIMATE_BLOCK levels are not zero.

    >>> nonzeros_per_block(np.array([0, 1, -1] * 100, dtype=np.int8)).tolist()
    [170, 30]
    """
    counts = np.empty(-(-len(values) // ESTIMATE_BLOCK), dtype=np.int64)
    nonzeros.count_blocks(values, ESTIMATE_BLOCK, counts)
    return counts


def estimate_even_size(magnitude_counts: npt.NDArray[np.int64], dimension: int) -> float:
    """The same where the density is even over the whole vector: about the most that this many non-zeros can take."""
    return _size(_even_bits(dimension, dimension - int(magnitude_counts[0])), magnitude_counts, dimension)


def _size(gap_bits: float, magnitude_counts: npt.NDArray[np.int64], dimension: int) -> float:
    total = before = dimension - int(magnitude_counts[0])
    chunks = -(-dimension // (1 << chunk_shift(total, dimension)))
    directory = 1.0 + chunks
    if total == 0:
        return directory
    bits = gap_bits + total
    for reach in (2, 3):
        here = before - int(magnitude_counts[reach - 1]) if reach <= len(magnitude_counts) else 0
        bits += chunks * (1 + 2 * math.log2(1 + here / chunks)) + _even_bits(before, here)
        before = here
        if here == 0:
            break
    rest = magnitude_counts[3:]
    if len(rest):
        bits += float(rest @ _gamma_lengths(len(rest)))
    directory += chunks * ((total / chunks >= 128) + 2.5) - 2
    return directory + bits / 8


@lru_cache(maxsize=4)
def _gamma_lengths(count: int) -> npt.NDArray[np.float64]:
    """Bits of the numbers 1 to `count` in Elias gamma."""
    lengths: npt.NDArray[np.float64] = 2 * np.floor(np.log2(np.arange(1, count + 1))) + 1
    return lengths


def _golomb_bits(things: npt.NDArray[np.number], marked: npt.NDArray[np.number]) -> float:
    """Mean bits of the gaps between `marked` of `things`, at the best divisor and with the price of following it."""
    things, marked = things[marked > 0], marked[marked > 0]
    p = np.minimum(marked / things, 0.999)
    divisor = np.maximum(1, np.rint(np.log(2) * (1 / p - 0.5)))
    bits = np.ceil(np.log2(divisor))
    q = 1 - p
    longer = (q ** (2**bits - divisor) - q**divisor) / (1 - q**divisor)
    rest = np.where(divisor > 1, bits - 1 + longer, 0)
    return float((marked * (1 / (1 - q**divisor) + rest + 0.03)).sum())


def _even_bits(things: int, marked: int) -> float:
    """The same for two numbers, in a tenth of the time."""
    if marked == 0:
        return 0.0
    p = min(marked / things, 0.999)
    divisor = max(1, round(math.log(2) * (1 / p - 0.5)))
    bits, q = (divisor - 1).bit_length(), 1 - p
    longer = (q ** (2**bits - divisor) - q**divisor) / (1 - q**divisor)
    rest = bits - 1 + longer if divisor > 1 else 0.0
    return marked * (1 / (1 - q**divisor) + rest + 0.03)


def chunk_shift(nonzeros: int, dimension: int) -> int:
    """log2 of the elements in a chunk: as few as give a chunk enough non-zeros on average."""
    shift = LEAST_SHIFT
    while (nonzeros << shift) < _FILLED * dimension and (1 << shift) < dimension:
        shift += 1
    return shift
