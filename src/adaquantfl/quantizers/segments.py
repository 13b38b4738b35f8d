"""Which norm an element is measured against: the scopes `whole`, `tensor` and buckets are lists of segment lengths.

A segment is a run of consecutive elements that share one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import QuantizeError


@dataclass(frozen=True, eq=False)
class Segments:
    """Segment boundaries of a vector: segment j holds elements offsets[j] up to offsets[j + 1]."""

    offsets: npt.NDArray[np.int64]

    @staticmethod
    def of(lengths: Sequence[int] | npt.NDArray[np.integer] | None, dimension: int) -> Segments:
        """Check `lengths` against the vector's dimension; None is one segment over everything."""
        if lengths is None:
            return Segments(np.array([0, dimension], dtype=np.int64))
        given = np.asarray(lengths)
        if given.ndim != 1 or given.size == 0 or not np.issubdtype(given.dtype, np.integer):
            raise QuantizeError(
                f"segments={lengths!r} is not a list of lengths. Expected whole numbers that add up to {dimension}, "
                "such as [p.numel() for p in model.parameters()]."
            )
        if (given <= 0).any():
            raise QuantizeError("Every segment length must be at least 1; leave empty segments out.")
        offsets = np.concatenate([[0], np.cumsum(given, dtype=np.int64)]).astype(np.int64)
        if offsets[-1] != dimension:
            raise QuantizeError(
                f"The segment lengths add up to {offsets[-1]:,}, but the vector has {dimension:,} elements."
            )
        return Segments(offsets)

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def dimension(self) -> int:
        return int(self.offsets[-1])

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)


def bucket_lengths(dimension: int, size: int) -> npt.NDArray[np.int64]:
    """Return segment lengths for buckets of `size` elements; the last one may be shorter.

    >>> bucket_lengths(10, 4).tolist()
    [4, 4, 2]
    """
    if size < 1:
        raise QuantizeError(f"A bucket of {size} elements is not possible: use 1 or more.")
    lengths = np.full(-(-dimension // size), size, dtype=np.int64)
    if dimension % size:
        lengths[-1] = dimension % size
    return lengths


def scope_segments(scope: str | int, tensors: Sequence[int]) -> npt.NDArray[np.int64] | None:
    """The segment lengths of a scope for a model whose tensors have these sizes; None is one norm for everything.

    >>> scope_segments("tensor", [6, 2]).tolist(), scope_segments(5, [6, 2]).tolist(), scope_segments("whole", [6, 2])
    ([6, 2], [5, 3], None)
    """
    if scope == "whole":
        return None
    if scope in ("tensor", "balanced"):
        return np.array(tensors, dtype=np.int64)
    if isinstance(scope, int) and not isinstance(scope, bool):
        return bucket_lengths(sum(tensors), scope)
    raise QuantizeError(
        f"scope = {scope!r}: use 'tensor', 'balanced', 'whole', or a whole number: the elements of a bucket."
    )
