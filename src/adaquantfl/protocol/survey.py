"""A survey: what other numbers of levels would have done to a client's update, measured there with the real codec.

Only the client has the update, so only the client can say. It sends two small numbers for each candidate, and they are
counted like everything else that it sends.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..codecs.coding import compress, encode
from ..errors import FrameError
from ..quantizers.levels import quantize
from ..quantizers.registry import find
from ..rules import Survey
from ..runs.config import Config
from .levels import levels_of

_ENTRY = np.dtype([("error", "<f4"), ("size", "<u4")])
_FELT = struct.Struct("<ff")


@dataclass(frozen=True)
class Seen:
    """A client's survey: its loss at the round's model, how much its noise raises it, and an entry a candidate."""

    loss: float
    harm: float
    entries: npt.NDArray[np.void]


def look(
    update: npt.NDArray[np.float32],
    candidates: Sequence[float],
    key: int,
    config: Config,
    segments: npt.NDArray[np.int64] | None,
    felt: tuple[float, float] = (0.0, 0.0),
) -> bytes:
    """Loss and harm as they were felt, and for each candidate the quantizer's variance and the size of a frame.

    The variance is a share of the update's squared norm. It is exact where the quantizer has a formula for it;
    otherwise it is the error of one draw, which at the size of an update is close to it.
    """
    entries = np.empty(len(candidates), dtype=_ENTRY)
    kind, wanted = find(config.quantizer), config.norm or None
    norm = kind.norm(wanted)
    for entry, s in zip(entries, candidates, strict=True):
        whole, stretch = levels_of(update, s, segments, config)
        exact = kind.error_share(update, whole, key, stretch, segments, norm)
        if exact is not None:
            entry["error"] = exact
            entry["size"] = len(compress(update, whole, key, config.codec, segments, stretch, kind, wanted))
        else:
            levels = quantize(update, whole, key, segments, stretch, kind, wanted)
            entry["error"] = np.sum((levels.dequantize() - update) ** 2, dtype=np.float64) / max(
                float(np.dot(update, update)), 1e-30
            )
            entry["size"] = len(encode(levels, config.codec))
    return _FELT.pack(*felt) + entries.tobytes()


def read(data: bytes, candidates: int) -> Seen:
    """A client's survey, checked: it may send anything. A loss or harm that is no number is one, and a bad one."""
    expected = _FELT.size + candidates * _ENTRY.itemsize
    if len(data) != expected:
        raise FrameError(f"Its survey has {len(data)} bytes; {candidates} candidates take {expected}.")
    entries = np.frombuffer(data, dtype=_ENTRY, offset=_FELT.size)
    if not np.isfinite(entries["error"]).all() or (entries["error"] < 0).any():
        raise FrameError("Its survey has a negative, NaN or infinite error.")
    loss, harm = _FELT.unpack_from(data)
    return Seen(loss, harm if math.isfinite(harm) else math.inf, entries)


def merge(candidates: Sequence[float], surveys: Mapping[int, Seen], weights: Mapping[int, float]) -> Survey:
    """The clients' errors, losses and harm, weighted as their updates are, and a client's mean bytes."""
    share = np.array([weights[client] for client in surveys])
    share /= share.sum()
    errors = share @ np.array([seen.entries["error"].astype(np.float64) for seen in surveys.values()])
    sizes = np.mean([seen.entries["size"] for seen in surveys.values()], axis=0)
    loss, harm = (float(share @ [getattr(seen, name) for seen in surveys.values()]) for name in ("loss", "harm"))
    return Survey(tuple(candidates), tuple(map(float, errors)), tuple(map(float, sizes)), loss, harm)
