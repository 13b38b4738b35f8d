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
from ..rules import Survey
from .arrays import Layout, Vector
from .messages import Order
from .uplink import asked_quantizer, levels_for

_ENTRY = np.dtype([("error", "<f4"), ("size", "<u4")])
_MEASURED = struct.Struct("<ff")


@dataclass(frozen=True)
class ClientSurvey:
    """A client's survey: its loss at the round's model, how much its noise raises it, and an entry per candidate."""

    loss: float
    harm: float
    entries: npt.NDArray[np.void]


def take(update: Vector, order: Order, layout: Layout, loss: float, harm: float) -> bytes:
    """Loss and harm as they were measured, and for each candidate the quantizer's variance and the size of a frame.

    The variance is a share of the update's squared norm. It is exact where the quantizer has a closed form. Otherwise
    it is the error of one draw, which is close to it at the size of an update.
    """
    (quantizer, norm), lengths = asked_quantizer(order, layout), layout.lengths
    segments = order.segments(lengths)
    entries = np.empty(len(order.candidates), dtype=_ENTRY)
    for entry, candidate in zip(entries, order.candidates, strict=True):
        s, stretch = levels_for(quantizer, order, candidate, lengths, update)
        assert s is not None
        exact = quantizer.error_share(update, s, order.key, stretch, segments, norm)
        if exact is not None:
            entry["error"] = exact
            frame = compress(update, s, order.key, order.codec, segments, stretch, quantizer, norm or None)
        else:
            levels = quantize(update, s, order.key, segments, stretch, quantizer, norm or None)
            error = np.sum((levels.dequantize() - update) ** 2, dtype=np.float64)
            entry["error"] = error / max(float(np.dot(update, update)), 1e-30)
            frame = encode(levels, order.codec)
        entry["size"] = len(frame)
    return _MEASURED.pack(loss, harm) + entries.tobytes()


def read(data: bytes, candidates: int) -> ClientSurvey:
    """A client's survey, checked. A loss or harm that is NaN counts as a failed measurement: infinite harm."""
    expected = _MEASURED.size + candidates * _ENTRY.itemsize
    if len(data) != expected:
        raise FrameError(f"Its survey has {len(data)} bytes; {candidates} candidates take {expected}.")
    entries = np.frombuffer(data, dtype=_ENTRY, offset=_MEASURED.size)
    if not np.isfinite(entries["error"]).all() or (entries["error"] < 0).any():
        raise FrameError("Its survey has a negative, NaN or infinite error.")
    loss, harm = _MEASURED.unpack_from(data)
    return ClientSurvey(loss, harm if math.isfinite(harm) else math.inf, entries)


def merge(candidates: Sequence[float], surveys: Mapping[int, ClientSurvey], weights: Mapping[int, float]) -> Survey:
    """The clients' errors, losses and harm, weighted as their updates are, and the mean bytes per client."""
    share = np.array([weights[client] for client in surveys])
    share /= share.sum()
    errors = share @ np.array([one.entries["error"].astype(np.float64) for one in surveys.values()])
    sizes = np.mean([one.entries["size"] for one in surveys.values()], axis=0)
    loss, harm = (float(share @ [getattr(one, name) for one in surveys.values()]) for name in ("loss", "harm"))
    return Survey(tuple(candidates), tuple(map(float, errors)), tuple(map(float, sizes)), loss, harm)
