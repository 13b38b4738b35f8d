"""`auto`: the codec with the smallest frame, chosen from the histogram of the levels and never by encoding twice.

It chooses among `fixed`, `sparse` and `dense`. Of a short vector the smallest frame is exactly that: only what cannot
be the smallest is not encoded.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..quantizers.levels import Levels, level_dtype
from ..quantizers.uniform import Prepared
from . import dense, fixed, sparse
from .dense_table import Counts, entropy_bytes, histogram
from .dense_wide import Census
from .frame import TILE, Header, payload_size
from .kernels.dense import STATE_WORDS

NAME = "auto"
_SHORT = 16_384  # elements: estimates are rough here, and trying costs a fraction of a millisecond
_LEAST_TABLE = 6  # bytes in front of a dense body's streams
_SPARSE_ENOUGH = 0.6  # share of non-zeros up to which a list of them takes less memory and time than all levels
_SAMPLE, _BLOCK = 64, 1024  # blocks that are looked at to guess that share, and their elements


def encode(levels: Levels) -> bytes:
    """Levels to the smallest frame."""
    if levels.dimension <= _SHORT:
        return _shortest(levels, sparse.encode(levels))
    census = Census.of(levels.values, levels.top)
    counts = census.counts
    if counts[levels.top] > (1 - _SPARSE_ENOUGH) * levels.dimension:
        found = sparse.Nonzeros.of_levels(levels.values)
        choice = _choose(counts, _nonzeros_per_block(found, levels.dimension), levels.dimension)
        if choice == sparse.NAME:
            return sparse.write(Header.of(levels, sparse.TAG), found)
    else:
        choice = _choose(counts, None, levels.dimension)
    return fixed.encode(levels) if choice == fixed.NAME else dense.encode(levels, census)


def compress(ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: npt.NDArray[np.int64] | None) -> bytes:
    """Floats to the frame that `encode` gives for the levels of `quantize`."""
    d = ready.segments.dimension
    if d <= _SHORT:
        found = sparse.Nonzeros.of_floats(ready, s, low, high)
        frame = sparse.write(Header(ready.tag, sparse.TAG, s, d, segments, ready.scales), found)
        if payload_size(frame) < min(fixed.body_size(d, s), _least_dense(_binary_entropy(len(found.index), d))):
            return frame
        values = np.zeros(d, dtype=level_dtype(s))
        values[found.index] = found.level
        return _shortest(ready.as_levels(values, s, segments), frame)
    if _guess_density(ready) < _SPARSE_ENOUGH:
        found = sparse.Nonzeros.of_floats(ready, s, low, high)
        counts: Counts = np.bincount(found.level + np.int64(s), minlength=2 * s + 1)
        counts[s] = d - len(found.level)
        sparse_enough = counts[s] > (1 - _SPARSE_ENOUGH) * d  # as `encode` asks, so that both choose alike
        choice = _choose(counts, _nonzeros_per_block(found, d) if sparse_enough else None, d)
        if choice == sparse.NAME:
            return sparse.write(Header(ready.tag, sparse.TAG, s, d, segments, ready.scales), found)
        values = np.zeros(d, dtype=level_dtype(s))
        values[found.index] = found.level
        levels = ready.as_levels(values, s, segments)
        return fixed.encode(levels) if choice == fixed.NAME else dense.encode(levels)
    return encode(ready.as_levels(ready.levels(0, d, s, low, high), s, segments))


def _shortest(levels: Levels, by_sparse: bytes) -> bytes:
    """The smallest frame of a short vector."""
    least, size = by_sparse, fixed.body_size(levels.dimension, levels.top)
    if size <= payload_size(by_sparse):
        least = fixed.encode(levels)
    counts = histogram(np.ascontiguousarray(levels.values), levels.top)
    if _least_dense(entropy_bytes(counts)) < payload_size(least):
        least = min(least, dense.encode(levels, Census(counts)), key=len)
    return least


def _least_dense(entropy: float) -> float:
    """Bytes that a dense body of a short vector has at the very least: half of its states hold no levels."""
    return 0.999 * entropy + 2 * STATE_WORDS + _LEAST_TABLE


def _binary_entropy(some: int, d: int) -> float:
    """Bytes that it takes at least to say which `some` of d elements are not zero."""
    p = some / d
    return 0.0 if p in (0.0, 1.0) else -d * (p * math.log2(p) + (1 - p) * math.log2(1 - p)) / 8


def _choose(counts: Counts, nonzeros_per_block: npt.NDArray[np.int64] | None, d: int) -> str:
    """The name of the smallest codec, from the histogram of signed levels and the density along the vector."""
    s = len(counts) // 2
    sizes: dict[str, float] = {fixed.NAME: fixed.body_size(d, s)}
    if nonzeros_per_block is not None:
        magnitudes = counts[s:].copy()
        magnitudes[1:] += counts[:s][::-1]
        sizes[sparse.NAME] = sparse.estimate_size(nonzeros_per_block, magnitudes, d)
    # What dense takes at the very least; planning its table to know better is worth it only if that would win.
    if entropy_bytes(counts) + dense.TILE_OVERHEAD * -(-d // TILE) < min(sizes.values()):
        sizes[dense.NAME] = dense.estimate_size(counts, d)
    return min(sizes, key=lambda name: sizes[name])


def _nonzeros_per_block(found: sparse.Nonzeros, d: int) -> npt.NDArray[np.int64]:
    return np.bincount(found.index // sparse.ESTIMATE_BLOCK, minlength=-(-d // sparse.ESTIMATE_BLOCK))


def _guess_density(ready: Prepared) -> float:
    """The expected share of non-zeros in a sample. It decides which way is taken to the answer, not the answer."""
    if ready.segments.count == 1:  # without a list of places
        rows = min(_SAMPLE, len(ready.x) // (4 * _BLOCK))
        step = len(ready.x) // rows
        blocks = ready.x[: rows * step].reshape(rows, step)[:, :_BLOCK]
        return float(np.minimum(np.abs(blocks) * ready.inverse[0], 1.0).mean())
    places = sample(ready.segments.dimension)
    owner = np.searchsorted(ready.segments.offsets, places, side="right") - 1
    return float(np.minimum(np.abs(ready.x[places]) * ready.inverse[owner], 1.0).mean())


def sample(d: int) -> npt.NDArray[np.int64]:
    """Blocks spread over the vector; of a short one a quarter at most: looking must not cost more than encoding."""
    starts = np.linspace(0, d - _BLOCK, min(_SAMPLE, d // (4 * _BLOCK)), dtype=np.int64)
    return starts[:, None] + np.arange(_BLOCK)
