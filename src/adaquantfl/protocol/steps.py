"""Steps of a parcel: the bytes that lead from one round's model to the next. docs/wire-format.md specifies them.

A step is the frames of the round, or the losslessly coded difference of the two models, whichever is smaller. The
client adds the frames up as the server did.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..codecs.accumulator import Accumulator, Checked
from ..codecs.difference import apply_difference, encode_difference
from ..codecs.frame import TILE, Bytes, Frame, Known, read_frame
from ..codecs.raw import decode_float32, encode_float32, frame_size
from ..codecs.varints import read_varint, varint
from ..errors import FrameError
from .arrays import Layout, Model, Vector

_STEP = struct.Struct("<BxxxfI")  # kind, what the sum is multiplied by, parts
_FRAMES, _DIFFERENCE = 0, 1
_PART = struct.Struct("<dQ")  # weight, length
_WEIGHT = struct.Struct("<d")
MOST_STEPS, MOST_FRAMES = 256, 2**14  # of a parcel: each may take a client as long as a whole model
SPARE_BYTES = 4096  # by which a parcel may be larger than the model
_BYTES_PER_CHANGE = 2.5  # of a coded difference, roughly: decides whether it is worth trying


@dataclass(frozen=True)
class Relay:
    """A round's frames with their weights, in the order in which the server added them up, and the sum's factor."""

    frames: Sequence[tuple[Frame, float]]
    factor: float = 1.0  # above 1 where somebody was missing


def whole_size(model: Model) -> int:
    """Bytes of the model as it is."""
    buffers = frame_size(len(model.buffers)) if len(model.buffers) else 0
    return frame_size(len(model.weights)) + buffers + len(model.others)


def add_up(weights: Vector, relay: Relay) -> Vector:
    """w + sum of p_i Q(update_i), on the server and on the client alike: the same calls give the same bits (eq. 3)."""
    return _added(weights, relay.frames, relay.factor)


def _added(weights: Vector, frames: Iterable[tuple[Frame, float]], factor: float) -> Vector:
    total = Accumulator(len(weights))
    for frame, weight in frames:
        total.add(Checked.of(frame, weight))
    update = rescaled(total.take(), factor)
    return np.add(weights, update, out=update)


def rescaled(update: Vector, factor: float) -> Vector:
    """Turn the sum over those who answered, in place, into that over all. One function, so both sides round alike."""
    return update if factor == 1.0 else np.multiply(update, np.float32(factor), out=update)


def untouched(model: Model) -> bytes:
    """The parts that are not quantized."""
    return (encode_float32(model.buffers) if len(model.buffers) else b"") + model.others


def read_untouched(data: Bytes, layout: Layout) -> tuple[Vector, bytes]:
    split = frame_size(layout.buffers) if layout.buffers else 0
    if len(data) - split != layout.other_bytes:
        raise FrameError("The arrays that travel as they are have not the size that the layout says.")
    buffers = decode_float32(data[:split], layout.buffers) if split else np.empty(0, dtype=np.float32)
    return buffers, bytes(data[split:])


def smallest_step(old: Model, new: Model, relay: Relay | None) -> bytes | None:
    """The round as bytes; None where the model itself is smaller."""
    exact = untouched(new)
    exact = _PART.pack(0.0, len(exact)) + exact
    candidates = [] if relay is None or len(relay.frames) > MOST_FRAMES else [_frames_step(relay, exact)]
    if not candidates or len(candidates[0]) > _BYTES_PER_CHANGE * _changes(old.weights, new.weights):
        part = encode_difference(old.weights, new.weights)
        candidates.append(b"".join((_STEP.pack(_DIFFERENCE, 1.0, 1), exact, _PART.pack(1.0, len(part)), part)))
    step = min(candidates, key=len)
    return step if len(step) < whole_size(new) else None


def _changes(old: Vector, new: Vector) -> int:
    """Return how many elements differ."""
    starts = range(0, len(old), TILE)
    return sum(int(np.count_nonzero(old[at : at + TILE] != new[at : at + TILE])) for at in starts)


def _frames_step(relay: Relay, exact: bytes) -> bytes:
    """The round's frames. The first says for all what the others leave out."""
    pieces: list[bytes] = []
    known: Known | None = None
    for frame, weight in relay.frames:
        data = frame.written(known)
        pieces += [_WEIGHT.pack(weight), varint(len(data)), data]
        known = known or Known.like(frame.header)
    return b"".join((_STEP.pack(_FRAMES, relay.factor, len(relay.frames)), exact, *pieces))


def may_follow(steps: Sequence[bytes], model: Model) -> bool:
    """Whether a client takes these steps in one parcel: they are smaller than the model, and not too many."""
    frames = sum(count for kind, _, count in map(_STEP.unpack_from, steps) if kind == _FRAMES)
    small = sum(map(len, steps)) < whole_size(model)
    return small and len(steps) <= MOST_STEPS and frames <= MOST_FRAMES


def walk(model: Model, body: Bytes, steps: int, layout: Layout) -> Model:
    """The model after these steps. FrameError or struct.error on bytes that are none."""
    read, frames = _Parts(body), 0
    if steps > MOST_STEPS or len(body) > whole_size(model) + SPARE_BYTES:
        raise FrameError(
            f"The parcel has {steps:,} steps in {len(body):,} bytes; expected {MOST_STEPS} steps at most, and not more "
            f"bytes than the model's {whole_size(model):,}."
        )
    for _ in range(steps):
        kind, factor, count = read.unpack(_STEP)
        if not 0 < factor < math.inf:
            raise FrameError(f"A step has the factor {factor}, which is not above 0 and finite.")
        exact, _ = read.part()
        if kind == _FRAMES:
            frames += count
            if frames > MOST_FRAMES:
                raise FrameError(f"The parcel has {frames:,} frames; {MOST_FRAMES:,} is the most.")
            weights = _added(model.weights, read.frames(count, len(model.weights)), factor)
        elif kind == _DIFFERENCE and count == 1:
            weights = apply_difference(model.weights, read.part()[0])
        else:
            raise FrameError(f"Unknown kind of step {kind}.")
        model = Model(weights, *read_untouched(exact, layout))
    if read.position != len(body):
        raise FrameError("The parcel has more bytes after its last step.")
    return model


class _Parts:
    """Reads the steps of a parcel from front to back."""

    def __init__(self, body: Bytes) -> None:
        self.body, self.position = memoryview(body), 0

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        values = form.unpack_from(self.body, self.position)
        self.position += form.size
        return values

    def part(self) -> tuple[bytes, float]:
        """A part and its weight."""
        weight, size = self.unpack(_PART)
        return self._take(size), weight

    def frames(self, count: int, dimension: int) -> Iterator[tuple[Frame, float]]:
        """Frames of this dimension and their weights, as `_frames_step` wrote them, one at a time."""
        known: Known | None = None
        for _ in range(count):
            (weight,) = self.unpack(_WEIGHT)
            size, self.position = read_varint(self.body, self.position)
            frame = read_frame(self._take(size), dimension, known)
            yield frame, weight
            known = known or Known.like(frame.header)

    def _take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self.body):
            raise FrameError("A part is longer than the rest of the parcel.")
        return bytes(self.body[start : self.position])
