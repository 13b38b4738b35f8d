"""A survey: what other numbers of levels would have done to a client's update, measured there with the real codec.

Only the client has the update, so only the client can say. It sends two small numbers for each candidate, and they are
counted like everything else that it sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..codecs.messages import compress
from ..errors import FrameError
from ..quantizers.segments import Segments
from ..quantizers.uniform import Stretch, balanced_stretch, whole_levels
from ..schedules import Survey

_ENTRY = np.dtype([("error", "<f4"), ("size", "<u4")])


def look(
    update: npt.NDArray[np.float32],
    candidates: Sequence[float],
    key: int,
    codec: str,
    segments: npt.NDArray[np.int64] | None,
    scope: str | int,
) -> bytes:
    """For each candidate the quantizer's exact variance, by the update's squared norm, and the size of a frame."""
    entries = np.empty(len(candidates), dtype=_ENTRY)
    for entry, s in zip(entries, candidates, strict=True):
        whole, stretch = levels_of(update, s, segments, scope)
        entry["error"] = variance_share(update, whole, stretch, segments)
        entry["size"] = len(compress(update, whole, key, codec, segments, stretch))
    return entries.tobytes()


def levels_of(
    update: npt.NDArray[np.float32], s: float, segments: npt.NDArray[np.int64] | None, scope: str | int
) -> tuple[int, Stretch]:
    """A number of levels, whole or not, as `compress` takes it in this scope."""
    if scope == "balanced" and segments is not None:
        return balanced_stretch(update, s, segments)
    return whole_levels(s)


def variance_share(
    update: npt.NDArray[np.float32], s: int, stretch: Stretch, lengths: npt.NDArray[np.int64] | None
) -> float:
    """E||Q_s(x) - x||^2 / ||x||^2, exactly: an element adds its step squared times p (1 - p).

    >>> variance_share(np.array([3.0, 4.0], dtype=np.float32), 5, 1.0, None)
    0.0
    """
    total = energy = 0.0
    parts = np.split(update, Segments.of(lengths, len(update)).offsets[1:-1])
    for part, factor in zip(parts, np.broadcast_to(stretch, len(parts)), strict=True):
        square = float(np.dot(part.astype(np.float64), part))
        if square > 0.0:
            step = factor * np.sqrt(square) / s
            p = np.abs(part) * np.float32(1 / step)
            p -= np.floor(p)
            total += step**2 * float(np.sum(p * (1 - p), dtype=np.float64))
            energy += square
    return total / energy if energy else 0.0


def read(data: bytes, candidates: int) -> npt.NDArray[np.void]:
    """A client's survey, checked: it may send anything."""
    if len(data) != candidates * _ENTRY.itemsize:
        raise FrameError(f"Its survey has {len(data)} bytes; {candidates} candidates take {_ENTRY.itemsize} each.")
    entries = np.frombuffer(data, dtype=_ENTRY)
    if not np.isfinite(entries["error"]).all() or (entries["error"] < 0).any():
        raise FrameError("Its survey has a negative, NaN or infinite error.")
    return entries


def merge(
    candidates: Sequence[float], surveys: Mapping[int, npt.NDArray[np.void]], weights: Mapping[int, float]
) -> Survey:
    """The clients' errors, weighted as their updates are, and a client's mean bytes."""
    share = np.array([weights[client] for client in surveys])
    share /= share.sum()
    errors = sum(p * entries["error"].astype(np.float64) for p, entries in zip(share, surveys.values(), strict=True))
    sizes = np.mean([entries["size"] for entries in surveys.values()], axis=0)
    return Survey(tuple(candidates), tuple(map(float, np.asarray(errors))), tuple(map(float, sizes)))
