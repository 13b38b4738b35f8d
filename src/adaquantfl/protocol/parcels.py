"""What brings a client from the model that it holds to the present one: a parcel. docs/wire-format.md specifies it.

A parcel has the model itself, or steps, each of which leads from one round's model to the next. A step is the frames of
the round, or the losslessly coded difference of the two models, whichever is smaller. The client adds the frames up as
the server did. A parcel names the digest of the model that it leads to, and the client checks it.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..codecs.accumulator import Accumulator, Checked
from ..codecs.coding import encode, quantize_within
from ..codecs.difference import apply_difference, encode_difference
from ..codecs.frame import TILE, Bytes, Frame, Known, read_frame
from ..codecs.raw import decode_float32, encode_float32, frame_size
from ..codecs.varints import varint
from ..errors import FrameError, ModelNeeded
from .arrays import Layout, Model, Vector
from .messages import Reader

_PARCEL = struct.Struct("<4sBxxxIII16s")  # magic, kind, held round, target round, steps, the target's digest
_MAGIC = b"AQP1"
_WHOLE, _STEPS, _FROM_ZERO = 0, 1, 2
_ZERO = bytes(16)  # in place of a digest: the step starts from a model of zeros, which everybody has
_FRESH_ERROR = 1e-3  # of the energy of the first weights: training starts as well from these as from others
_STEP = struct.Struct("<BxxxfI")  # kind, what the sum is multiplied by, parts
_FRAMES, _DIFFERENCE = 0, 1
_PART = struct.Struct("<dQ")  # weight, length
_WEIGHT = struct.Struct("<d")
MOST_STEPS, MOST_FRAMES = 256, 2**14  # of a parcel: each may take a client as long as a whole model
SPARE_BYTES = 4096  # by which a parcel may be larger than the model
_BYTES_PER_CHANGE = 2.5  # of a coded difference, roughly: decides whether it is worth trying


@dataclass(frozen=True, eq=False)
class Held:
    """A model at a client, the round that it belongs to, and its digest."""

    round: int
    model: Model
    digest: bytes
    layout: Layout


@dataclass(frozen=True)
class Log:
    """What leads to the present model, and who holds which one.

    Attributes:
        round: the round of the present model.
        digest: its digest.
        steps: the last of them leads to the present model.
        starts: the digest of the model that each step starts from.
        holds: client -> the round whose model it was sent last.
    """

    round: int
    digest: bytes
    steps: tuple[bytes, ...] = ()
    starts: tuple[bytes, ...] = ()
    holds: Mapping[int, int] = field(default_factory=dict)

    def after_round(self, old: Model, new: Model, relay: Relay | None) -> Log:
        """One step more. relay: the round's frames, or None where the client cannot add them up."""
        step = smallest_step(old, new, relay)
        steps, starts = ((*self.steps, step), (*self.starts, self.digest)) if step is not None else ((), ())
        while steps and not may_follow(steps, new):
            steps, starts = steps[1:], starts[1:]
        return replace(self, round=self.round + 1, digest=digest_of(new), steps=steps, starts=starts)

    def round_of(self, digest: bytes) -> int | None:
        """Return the round of the model with this digest; None if no known steps start from it."""
        known = (*self.starts, self.digest)
        return self.round - len(self.starts) + known.index(digest) if digest in known else None

    def parcel(self, held: int | None, model: Model) -> bytes:
        """What brings a client from the model of round `held` (None: it has none) to the present one."""
        missed = self._missed(held)
        if missed is None:
            head = _PARCEL.pack(_MAGIC, _WHOLE, 0, self.round, 0, self.digest)
            return b"".join((head, encode_float32(model.weights), untouched(model)))
        kind = _FROM_ZERO if held is None else _STEPS
        return b"".join((_PARCEL.pack(_MAGIC, kind, held or 0, self.round, len(missed), self.digest), *missed))

    def leads_from(self, held: int | None) -> bool:
        """Whether the steps from the model of that round (None: from zeros) are known, and smaller than the model."""
        return self._missed(held) is not None

    def noted(self, clients: Collection[int], round: int | None) -> Log:
        """These clients hold the model of this round; None: of what they hold, nothing is known."""
        others = {client: held for client, held in self.holds.items() if client not in clients}
        return replace(self, holds=others if round is None else {**others, **dict.fromkeys(clients, round)})

    def _missed(self, held: int | None) -> tuple[bytes, ...] | None:
        """The steps from `held` to now; None where they are not known or the model is smaller."""
        if held is None:
            return self.steps if self.starts[:1] == (_ZERO,) else None
        behind = self.round - held
        return self.steps[len(self.steps) - behind :] if 0 <= behind <= len(self.steps) else None


def fresh_start(model: Model, lengths: tuple[int, ...]) -> tuple[Model, Log]:
    """A first model that takes a sixth of the bytes: one whose weights are rounded, and the step that leads to it."""
    levels = quantize_within(model.weights, _FRESH_ERROR, segments=lengths)
    relay = Relay([(read_frame(encode(levels)), 1.0)])
    zeros = np.zeros_like(model.weights)
    rounded = replace(model, weights=add_up(zeros, relay))
    return rounded, Log(-1, _ZERO).after_round(replace(model, weights=zeros), rounded, relay)


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
    """The model after these steps. FrameError on bytes that are none."""
    read, frames = Reader(body), 0
    if steps > MOST_STEPS or len(body) > whole_size(model) + SPARE_BYTES:
        raise FrameError(
            f"The parcel has {steps:,} steps in {len(body):,} bytes; expected {MOST_STEPS} steps at most, and not more "
            f"bytes than the model's {whole_size(model):,}."
        )
    for _ in range(steps):
        kind, factor, count = read.unpack(_STEP)
        if not 0 < factor < math.inf:
            raise FrameError(f"A step has the factor {factor}, which is not above 0 and finite.")
        exact = _part(read)
        if kind == _FRAMES:
            frames += count
            if frames > MOST_FRAMES:
                raise FrameError(f"The parcel has {frames:,} frames; {MOST_FRAMES:,} is the most.")
            weights = _added(model.weights, _frames(read, count, len(model.weights)), factor)
        elif kind == _DIFFERENCE and count == 1:
            weights = apply_difference(model.weights, _part(read))
        else:
            raise FrameError(f"Unknown kind of step {kind}.")
        model = Model(weights, *read_untouched(exact, layout))
    if not read.at_end:
        raise FrameError("The parcel has more bytes after its last step.")
    return model


def _part(read: Reader) -> bytes:
    """A part, which has a weight that means nothing and its length before it."""
    _, size = read.unpack(_PART)
    return read.take(size)


def _frames(read: Reader, count: int, dimension: int) -> Iterator[tuple[Frame, float]]:
    """Frames of this dimension and their weights, as `_frames_step` wrote them, one at a time."""
    known: Known | None = None
    for _ in range(count):
        (weight,) = read.unpack(_WEIGHT)
        frame = read_frame(read.sized(), dimension, known)
        yield frame, weight
        known = known or Known.like(frame.header)


def open_parcel(parcel: Bytes, held: Held | None, layout: Layout | None) -> Held:
    """The model that a parcel leads to. ModelNeeded where the client must ask for the whole model."""
    if len(parcel) < _PARCEL.size:
        raise FrameError("The parcel is shorter than its header.")
    magic, kind, start, target, steps, digest = _PARCEL.unpack_from(parcel)
    if magic != _MAGIC or kind not in (_WHOLE, _STEPS, _FROM_ZERO):
        raise FrameError("The parcel does not begin as one of this version does.")
    if held is not None and held.digest == digest:
        return replace(held, round=target)
    body = parcel[_PARCEL.size :]
    if kind == _STEPS:
        if held is None or held.round != start:
            has = "no model" if held is None else f"the model of round {held.round}"
            raise ModelNeeded(f"The order starts from the model of round {start}, but this client has {has}.")
        layout, model = held.layout, walk(held.model, body, steps, held.layout)
    elif layout is None:
        raise ModelNeeded("The order has no layout, and this client does not know the model's.")
    elif kind == _FROM_ZERO:
        zeros, buffers = (np.zeros(size, dtype=np.float32) for size in (layout.dimension, layout.buffers))
        model = walk(Model(zeros, buffers, bytes(layout.other_bytes)), body, steps, layout)
    else:
        split = frame_size(layout.dimension)
        model = Model(decode_float32(body[:split], layout.dimension), *read_untouched(body[split:], layout))
    if digest_of(model) != digest:
        raise ModelNeeded(f"The model of round {target} has another digest here than at the server.")
    if not layout.is_finite(model):
        raise FrameError(f"The model of round {target} has a value that is NaN or infinite.")
    return Held(target, model, digest, layout)


def digest_of(model: Model) -> bytes:
    """Return the 16-byte digest that identifies a model."""
    digest = hashlib.sha256(np.ascontiguousarray(model.weights, dtype="<f4").data)
    digest.update(np.ascontiguousarray(model.buffers, dtype="<f4").data)
    digest.update(model.others)
    return digest.digest()[:16]
