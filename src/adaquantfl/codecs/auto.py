"""`auto`: the codec with the smallest frame, chosen from the histogram of the levels and never by encoding twice.

It chooses among `fixed`, `sparse` and `dense`. Only vectors so short that it costs nothing are encoded by all three,
and the smallest frame is exactly that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..quantizers.levels import Levels, level_dtype
from ..quantizers.uniform import Prepared
from . import dense, fixed, sparse
from .dense_table import Counts
from .frame import TILE, Header

NAME = "auto"
_SHORT = 16_384  # elements: estimates are rough here, and trying costs a fraction of a millisecond
_SPARSE_ENOUGH = 0.6  # share of non-zeros up to which a list of them takes less memory and time than all levels
_SAMPLE, _BLOCK = 64, 1024  # blocks that are looked at to guess that share, and their elements


def encode(levels: Levels) -> bytes:
    """Levels to the smallest frame."""
    if levels.dimension <= _SHORT:
        return min(fixed.encode(levels), sparse.encode(levels), dense.encode(levels), key=len)
    counts = dense.histogram(levels.values, levels.top)
    if counts[levels.top] > (1 - _SPARSE_ENOUGH) * levels.dimension:
        found = sparse.Nonzeros.of_levels(levels.values)
        choice = _choose(counts, _nonzeros_per_block(found, levels.dimension), levels.dimension)
        if choice == sparse.NAME:
            return sparse.write(Header.of(levels, sparse.TAG), found)
    else:
        choice = _choose(counts, None, levels.dimension)
    return fixed.encode(levels) if choice == fixed.NAME else dense.encode(levels, counts)


def compress(ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: npt.NDArray[np.int64] | None) -> bytes:
    """Floats to the frame that `encode` gives for the levels of `quantize`."""
    d = ready.segments.dimension
    if d > _SHORT and _guess_density(ready) < _SPARSE_ENOUGH:
        found = sparse.Nonzeros.of_floats(ready, s, low, high)
        counts: Counts = np.bincount(found.level + np.int64(s), minlength=2 * s + 1)
        counts[s] = d - len(found.level)
        sparse_enough = counts[s] > (1 - _SPARSE_ENOUGH) * d  # as `encode` asks, so that both choose alike
        if sparse_enough and _choose(counts, _nonzeros_per_block(found, d), d) == sparse.NAME:
            return sparse.write(Header(ready.tag, sparse.TAG, s, d, segments, ready.scales), found)
        values = np.zeros(d, dtype=level_dtype(s))
        values[found.index] = found.level
    else:
        values = ready.levels(0, d, s, low, high)
    return encode(ready.as_levels(values, s, segments))


def _choose(counts: Counts, nonzeros_per_block: npt.NDArray[np.int64] | None, d: int) -> str:
    """The name of the smallest codec, from the histogram of signed levels and the density along the vector."""
    s = len(counts) // 2
    sizes: dict[str, float] = {fixed.NAME: fixed.body_size(d, s)}
    if nonzeros_per_block is not None:
        magnitudes = counts[s:].copy()
        magnitudes[1:] += counts[:s][::-1]
        sizes[sparse.NAME] = sparse.estimate_size(nonzeros_per_block, magnitudes, d)
    # What dense takes at the very least; planning its table to know better is worth it only if that would win.
    if _entropy_bytes(counts) + dense.TILE_OVERHEAD * -(-d // TILE) < min(sizes.values()):
        sizes[dense.NAME] = dense.estimate_size(counts, d)
    return min(sizes, key=lambda name: sizes[name])


def _entropy_bytes(counts: Counts) -> float:
    present = counts[counts > 0]
    return float(-np.sum(present * np.log2(present / present.sum()))) / 8


def _nonzeros_per_block(found: sparse.Nonzeros, d: int) -> npt.NDArray[np.int64]:
    return np.bincount(found.index // sparse.ESTIMATE_BLOCK, minlength=-(-d // sparse.ESTIMATE_BLOCK))


def _guess_density(ready: Prepared) -> float:
    """The expected share of non-zeros in a sample. It decides which way is taken to the answer, not the answer."""
    places = sample(ready.segments.dimension)
    owner = np.searchsorted(ready.segments.offsets, places, side="right") - 1 if ready.segments.count > 1 else 0
    return float(np.minimum(np.abs(ready.x[places]) * ready.inverse[owner], 1.0).mean())


def sample(d: int) -> npt.NDArray[np.int64]:
    """Blocks spread over the vector; of a short one a quarter at most: looking must not cost more than encoding."""
    starts = np.linspace(0, d - _BLOCK, min(_SAMPLE, d // (4 * _BLOCK)), dtype=np.int64)
    return starts[:, None] + np.arange(_BLOCK)
