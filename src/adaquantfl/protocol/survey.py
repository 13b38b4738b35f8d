"""A survey: what other numbers of levels would have done to a client's update, measured there with the real codec.

Only the client has the update, so only the client can say. It sends two small numbers for each candidate, and they are
counted like everything else that it sends. Both are binary logarithms in steps of 1/1024, which is 0.07 %.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

import numpy as np
import numpy.typing as npt

from ..codecs.coding import compress, encode
from ..errors import FrameError
from ..quantizers.base import Count
from ..quantizers.choice import exact_error
from ..quantizers.levels import quantize
from ..quantizers.registry import by_tag
from ..rules import Survey
from .arrays import Layout, Vector
from .limits import bounded
from .messages import Order
from .uplink import levels_for

_ENTRY = np.dtype([("error", "<i2"), ("size", "<i2")])
_STEPS = 1024  # of a binary logarithm
MOST = 2.0**31  # that an entry says
MOST_LOSS = 1e38  # that fits float32
SMALL_HARM = 0.01  # of the loss: where the others' harm is close to 0 by chance, this much is no lie
_MEASURED = struct.Struct("<ff")


@dataclass(frozen=True)
class ClientSurvey:
    """A client's survey: its loss at the round's model, and how much its noise raises it. Each candidate has an error,
    as a share of the update's squared norm, and the bytes of a frame as it is sent."""

    loss: float
    harm: float
    errors: npt.NDArray[np.float64]
    sizes: npt.NDArray[np.float64]


def take(update: Vector, order: Order, layout: Layout, loss: float, harm: float) -> bytes:
    """Loss and harm as they were measured, and for each candidate the quantizer's variance and the size of a frame.

    The variance is a share of the update's squared norm. It is exact where the quantizer has a closed form. Otherwise
    it is the error of one draw, which is close to it at the size of an update.
    """
    (quantizer, norm), lengths = by_tag(order.quantizer), layout.lengths
    segments = order.segments(lengths)
    measured, known = [], order.known(lengths)
    for candidate in order.candidates:
        s, stretch = levels_for(quantizer, order, Count(candidate), lengths, update)
        assert s is not None
        error = exact_error(quantizer, update, s, stretch, segments, norm)
        if error is not None:
            frame = compress(update, s, order.key, order.codec, segments, stretch, quantizer, norm or None, known)
        else:
            levels = quantize(update, s, order.key, segments, stretch, quantizer, norm or None)
            energy = np.sum((levels.dequantize() - update) ** 2, dtype=np.float64)
            error = energy / max(float(np.dot(update, update)), 1e-30)
            frame = encode(levels, order.codec, known)
        measured.append((error, len(frame)))
    bounded = np.clip(np.nan_to_num(measured, nan=MOST), 1 / MOST, MOST)
    entries: npt.NDArray[np.int16] = np.rint(_STEPS * np.log2(bounded)).astype("<i2")
    return _MEASURED.pack(*(one if abs(one) < MOST_LOSS else math.inf for one in (loss, harm))) + entries.tobytes()


def read(data: bytes, candidates: int) -> ClientSurvey:
    """A client's survey, checked. Where loss or harm is not a finite number, the measurement failed: infinite harm."""
    expected = _MEASURED.size + candidates * _ENTRY.itemsize
    if len(data) != expected:
        raise FrameError(
            f"Its survey has {len(data)} bytes; {candidates} candidates take {expected}. "
            "Server and clients need the same version of adaquantfl."
        )
    entries = np.frombuffer(data, dtype=_ENTRY, offset=_MEASURED.size)
    errors, sizes = (np.exp2(entries[name] / _STEPS) for name in ("error", "size"))
    loss, harm = _MEASURED.unpack_from(data)
    measured = math.isfinite(loss) and math.isfinite(harm)
    return ClientSurvey(loss, harm if measured else math.inf, errors, sizes)


def merge(
    candidates: Sequence[float], surveys: Mapping[int, ClientSurvey], weights: Mapping[int, float]
) -> tuple[Survey, set[int]]:
    """The clients' errors, losses and harm, weighted as their updates are, and the mean bytes per client.

    Every figure counts within the bounds of `limits.bounded`. Also returns the clients with one beyond them.
    """
    share = np.array([weights[client] for client in surveys])
    share /= share.sum()
    told = {client: (*one.errors.tolist(), *one.sizes.tolist(), one.loss) for client, one in surveys.items()}
    columns = [bounded(dict(zip(told, column, strict=True)), weights) for column in zip(*told.values(), strict=True)]
    typical = median_low(columns[-1].values())  # of the losses
    harms = {client: one.harm for client, one in surveys.items()}
    harms_counted = bounded(harms, weights, signed=True, spare=SMALL_HARM * typical)
    rows, count = np.array([list(column.values()) for column in columns]).T, len(candidates)
    errors = share @ np.ascontiguousarray(rows[:, :count])
    sizes = np.mean(np.ascontiguousarray(rows[:, count:-1]), axis=0)
    loss, harm = (float(share @ list(one.values())) for one in (columns[-1], harms_counted))
    far_off = {
        client
        for client in surveys
        if told[client] != tuple(column[client] for column in columns) or harms[client] != harms_counted[client]
    }
    return Survey(tuple(candidates), tuple(map(float, errors)), tuple(map(float, sizes)), loss, harm), far_off
