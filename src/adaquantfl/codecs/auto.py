"""`auto`: the codec with the smallest frame, chosen from the histogram of the levels and never by encoding twice.

It chooses among `fixed`, `sparse` and `dense`. Of a short vector the smallest frame is exactly that: only what cannot
be the smallest is not encoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..quantizers.base import L2
from ..quantizers.levels import Levels
from ..quantizers.uniform import Prepared
from . import dense, fixed, sparse
from .dense_table import Census, Counts, entropy_bytes, histogram
from .frame import TILE, Header, Known, Part, framed
from .header import Lengths
from .sparse_size import estimate_even_size, estimate_size, least_estimate, least_size, nonzeros_per_block

NAME = "auto"
_TAGS = {sparse.NAME: sparse.TAG, dense.NAME: dense.TAG}
_SHORT = 16_384  # elements: estimates are rough here, and trying costs a fraction of a millisecond
_TILE_OVERHEAD = 24  # bytes of a dense body for each tile that carry no levels, about
_LEAST_TABLE = 6  # bytes in front of a dense body's streams
_LISTED = 0.05  # share of non-zeros up to which a list of them takes less time than all levels
_LONG_LIST = 4  # s from which most levels of a maximum norm are non-zero
_SPARSE_ENOUGH = 0.6  # share of non-zeros up to which `sparse` can be the smallest
_SAMPLE, _BLOCK = 64, 128  # blocks that are looked at to guess that share, and their elements
_SPREAD = 32  # at most one element in 32 is looked at
_FEW_LEVELS = 64  # a loop over fewer takes less time than NumPy's


def encode(levels: Levels, known: Known | None = None) -> bytes:
    """Levels to the smallest frame."""
    d, top = levels.dimension, levels.top
    if d <= _SHORT:
        return _shortest(levels, known)
    census = Census.of(levels.values, top)
    counts = census.counts
    if _surely_sparse(counts, d):
        return sparse.encode(levels, known)
    blocks = nonzeros_per_block(levels.values)
    plans: list[dense.Plan] = []

    def measure(name: str) -> float:
        if name == dense.NAME:
            plans.append(dense.plan(census, d))
            return plans[0].size
        return estimate_size(blocks, _magnitudes(counts), d)

    sizes = {fixed.NAME: fixed.body_size(d, top), dense.NAME: _least_tiles(counts, d)}
    if _sparse_enough(counts, d):
        sizes[sparse.NAME] = least_estimate(blocks, _magnitudes(counts), d)
    choice = _smallest(sizes, {fixed.NAME}, measure)
    if choice == dense.NAME:
        return framed(Header.of(levels, dense.TAG), dense.body_parts(levels, plans[0]), known)
    return fixed.encode(levels, known) if choice == fixed.NAME else sparse.encode(levels, known)


def compress(
    ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: Lengths, known: Known | None = None
) -> bytes:
    """Floats to the frame that `encode` gives for the levels of `quantize`."""
    d = ready.segments.dimension
    if _many_nonzeros(ready, s) if d <= _SHORT else _guess_density(ready) > _LISTED:
        return encode(ready.as_levels(ready.levels(0, d, s, low, high), s, segments), known)
    found = sparse.Nonzeros.of_floats(ready, s, low, high)
    header = Header(ready.tag, sparse.TAG, s, d, segments, ready.scales)
    if d <= _SHORT:
        parts = sparse.body_parts(found, d)
        if _size(parts) < min(fixed.body_size(d, s), _least_dense(_entropy(found, d, s))):
            return framed(header, parts, known)
        return _shortest(ready.as_levels(found.values(d, s), s, segments), known, parts)
    counts: Counts = np.bincount(found.level + np.int64(s), minlength=2 * s + 1)
    counts[s] = d - len(found.level)
    if _surely_sparse(counts, d):
        return framed(header, sparse.body_parts(found, d), known)
    return encode(ready.as_levels(found.values(d, s), s, segments), known)


def _shortest(levels: Levels, known: Known | None, by_sparse: list[Part] | None = None) -> bytes:
    """The smallest frame of a short vector. by_sparse: the body of `sparse`, where there is one already."""
    values = np.ascontiguousarray(levels.values)
    counts, d = histogram(values, levels.top), levels.dimension
    bodies = {} if by_sparse is None else {sparse.NAME: by_sparse}

    def measure(name: str) -> float:
        if name == dense.NAME:
            bodies[name] = dense.body_parts(levels, dense.plan(Census(counts), d))
        else:
            bodies[name] = sparse.body_parts(sparse.Nonzeros.of_levels(levels.values), d)
        return _size(bodies[name])

    sizes = {
        fixed.NAME: fixed.body_size(d, levels.top),
        sparse.NAME: least_size(values, counts) if by_sparse is None else _size(by_sparse),
        dense.NAME: _least_dense(entropy_bytes(counts)),
    }
    choice = _smallest(sizes, {fixed.NAME, *bodies}, measure)
    if choice == fixed.NAME:
        return fixed.encode(levels, known)
    return framed(Header.of(levels, _TAGS[choice]), bodies[choice], known)


def _size(parts: list[Part]) -> int:
    return sum(map(len, parts))


def _smallest(sizes: dict[str, float], known: set[str], measure: Callable[[str], float]) -> str:
    """The codec with the smallest size. Those that are not `known` are the least that it can be, and are measured only
    where they are the least of all.
    """
    while (name := min(sizes, key=sizes.__getitem__)) not in known:
        sizes[name] = measure(name)
        known.add(name)
    return name


def _least_dense(entropy: float) -> float:
    """Bytes that a dense body has at the very least: half of its states hold no levels."""
    return 0.999 * entropy + 2 * dense.LANES[0] + _LEAST_TABLE


def _least_tiles(counts: Counts, d: int) -> float:
    """The same for a long vector, about."""
    return entropy_bytes(counts) + _TILE_OVERHEAD * -(-d // TILE)


def _entropy(found: sparse.Nonzeros, d: int, s: int) -> float:
    """The entropy of levels of which these are not zero, in bytes."""
    counts = np.bincount(found.level + np.int32(s))
    if len(counts) > _FEW_LEVELS:
        return entropy_bytes(np.append(counts, d - len(found.level)))
    present: list[int] = [count for count in (*counts.tolist(), d - len(found.level)) if count]
    return (d * math.log2(d) - sum(count * math.log2(count) for count in present)) / 8


def _sparse_enough(counts: Counts, d: int) -> bool:
    return bool(counts[len(counts) // 2] > (1 - _SPARSE_ENOUGH) * d)


def _surely_sparse(counts: Counts, d: int) -> bool:
    """Whether `sparse` is the smallest even if the density is the same all along the vector."""
    if not _sparse_enough(counts, d):
        return False
    size = estimate_even_size(_magnitudes(counts), d)
    return size < fixed.body_size(d, len(counts) // 2) and size < _least_tiles(counts, d)


def _magnitudes(counts: Counts) -> Counts:
    s = len(counts) // 2
    magnitudes = counts[s:].copy()
    magnitudes[1:] += counts[:s][::-1]
    return magnitudes


def _many_nonzeros(ready: Prepared, s: int) -> bool:
    """Whether a list of a short vector's non-zeros is likely to be long: by the norm alone, without a look at it."""
    return s * s * ready.segments.count > ready.segments.dimension if ready.norm == L2 else s > _LONG_LIST


def _guess_density(ready: Prepared) -> float:
    """The expected share of non-zeros in a sample. It decides which way is taken to the answer, not the answer."""
    if ready.segments.count == 1:  # without a list of places
        rows = min(_SAMPLE, len(ready.x) // (_SPREAD * _BLOCK))
        step = len(ready.x) // rows
        blocks = ready.x[: rows * step].reshape(rows, step)[:, :_BLOCK]
        return float(np.minimum(np.abs(blocks) * ready.inverse[0], 1.0).mean())
    places = sample(ready.segments.dimension)
    owner = np.searchsorted(ready.segments.offsets, places, side="right") - 1
    return float(np.minimum(np.abs(ready.x[places]) * ready.inverse[owner], 1.0).mean())


def sample(d: int) -> npt.NDArray[np.int64]:
    """Blocks spread over the vector; of a short one a part: looking must not cost more than encoding."""
    starts = np.linspace(0, d - _BLOCK, min(_SAMPLE, d // (_SPREAD * _BLOCK)), dtype=np.int64)
    return starts[:, None] + np.arange(_BLOCK)
