"""The way down, exact and small: a client that holds w_j gets what leads from there to w_k, or w_k itself.

The new model is the old one plus the weighted sum of the clients' frames, and those are small. A step is the smallest
of: the round's frames, to be added up by the client as the server did; the two models' difference, losslessly coded;
the model. The server remembers as many steps as are smaller than the model together. A parcel names the digest of the
model that it leads to, and the client checks it: a client whose model is not that one asks for the whole.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..codecs.coding import Accumulator
from ..codecs.difference import apply_difference, encode_difference
from ..codecs.raw import decode_float32, encode_float32, frame_size
from ..errors import EngineError, FrameError
from .messages import Model, Vector

DIGEST_BYTES = 16
_PARCEL = struct.Struct("<4sBxxxIII16s")  # magic, kind, held round, target round, steps, the target's digest
_MAGIC = b"AQP1"
_WHOLE, _STEPS = 0, 1
_STEP = struct.Struct("<BxxxfI")  # kind, what the sum is multiplied by, parts
_FRAMES, _DIFFERENCE = 0, 1
_PART = struct.Struct("<dQ")  # weight, length
_BYTES_A_CHANGE = 2.5  # of a coded difference, roughly: decides whether it is worth trying


class ParcelRefused(EngineError):
    """A client cannot use a parcel: it does not hold what the steps start from, or the result is not the server's."""


@dataclass(frozen=True)
class Relay:
    """A round's frames with their weights, in the order in which the server added them up, and the sum's factor."""

    frames: Sequence[tuple[bytes, float]]
    factor: float = 1.0  # above 1 where somebody was missing


@dataclass(frozen=True)
class Downlink:
    """The server's side: the present model's digest, and the steps that lead to it. Part of the run's state."""

    round: int
    digest: bytes
    steps: tuple[bytes, ...] = ()  # the last one leads to the present model
    holds: dict[int, int] = field(default_factory=dict)  # client -> the round whose model it was sent last

    @staticmethod
    def start(round: int, model: Model) -> Downlink:
        """Nobody holds anything."""
        return Downlink(round, digest_of(model))

    def after_round(self, old: Model, new: Model, relay: Relay | None) -> Downlink:
        """A round is over: one step more. relay: its frames, or None where they are too large to keep."""
        step = _smallest_step(old, new, relay)
        steps = (*self.steps, step) if step is not None else ()
        while steps and sum(map(len, steps)) >= whole_size(new):
            steps = steps[1:]
        return replace(self, round=self.round + 1, digest=digest_of(new), steps=steps)

    def parcel(self, held: int | None, model: Model) -> bytes:
        """What brings a client from the model of round `held` (None: it has none) to the present one."""
        head = _PARCEL.pack(_MAGIC, *self._route(held), self.digest)
        if self._missed(held) is None:
            buffers = encode_float32(model.buffers) if len(model.buffers) else b""
            return head + encode_float32(model.weights) + buffers
        return head + b"".join(self._missed(held) or ())

    def size(self, held: int | None, model: Model) -> int:
        """The length of that parcel."""
        missed = self._missed(held)
        return _PARCEL.size + (whole_size(model) if missed is None else sum(map(len, missed)))

    def sent_to(self, clients: Sequence[int], missing: Container[int] = ()) -> Downlink:
        """These clients were sent the model before the present one; of who is missing since, nothing is known."""
        holds = {**self.holds, **dict.fromkeys(clients, self.round - 1)}
        return replace(self, holds={client: round for client, round in holds.items() if client not in missing})

    def _missed(self, held: int | None) -> tuple[bytes, ...] | None:
        """The steps from `held` to now; None where they are not known or the model is smaller."""
        behind = self.round - held if held is not None else -1
        return self.steps[len(self.steps) - behind :] if 0 <= behind <= len(self.steps) else None

    def _route(self, held: int | None) -> tuple[int, int, int, int]:
        missed = self._missed(held)
        if missed is None:
            return _WHOLE, 0, self.round, 0
        return _STEPS, held or 0, self.round, len(missed)


@dataclass(frozen=True)
class Held:
    """The client's side: a model, the round that it belongs to, and its digest."""

    round: int
    model: Model
    digest: bytes


def open_parcel(parcel: bytes, held: Held | None, dimension: int, buffers: int) -> Held:
    """The model that a parcel leads to. ParcelRefused where the client must ask for the whole model."""
    if len(parcel) < _PARCEL.size:
        raise ParcelRefused("The parcel is shorter than its header.")
    magic, kind, start, target, steps, digest = _PARCEL.unpack_from(parcel)
    if magic != _MAGIC or kind not in (_WHOLE, _STEPS):
        raise ParcelRefused("The parcel does not begin as one of this version does.")
    body = parcel[_PARCEL.size :]
    try:
        if kind == _WHOLE:
            split = frame_size(dimension)
            statistics = decode_float32(body[split:], buffers) if buffers else np.empty(0, dtype=np.float32)
            model = Model(decode_float32(body[:split], dimension), statistics)
        else:
            if held is None or held.round != start:
                has = "no model" if held is None else f"the model of round {held.round}"
                raise ParcelRefused(f"The parcel leads on from the model of round {start}, but this client has {has}.")
            model = _walk(held.model, body, steps)
    except (FrameError, struct.error) as error:
        raise ParcelRefused(f"The parcel is malformed: {error}") from None
    # With no step to take, the digest was checked when the model came.
    found = held.digest if kind == _STEPS and steps == 0 and held is not None else digest_of(model)
    if found != digest:
        raise ParcelRefused(f"The model of round {target} has another digest here than at the server.")
    return Held(target, model, digest)


def digest_of(model: Model) -> bytes:
    """Of parameters and buffers, so that who holds the same model can tell."""
    digest = hashlib.sha256(np.ascontiguousarray(model.weights, dtype="<f4").data)
    digest.update(np.ascontiguousarray(model.buffers, dtype="<f4").data)
    return digest.digest()[:DIGEST_BYTES]


def whole_size(model: Model) -> int:
    """Bytes of the model as it is."""
    return frame_size(len(model.weights)) + (frame_size(len(model.buffers)) if len(model.buffers) else 0)


def add_up(weights: Vector, relay: Relay) -> Vector:
    """w + sum of p_i Q(update_i), on the server and on the client alike: the same calls give the same bits (eq. 3)."""
    total = Accumulator(len(weights))
    for frame, weight in relay.frames:
        total.add(frame, weight)
    return weights + rescaled(total.result(), relay.factor)


def rescaled(update: Vector, factor: float) -> Vector:
    """A sum over those who answered in the place of the sum over all: one place, so that both sides round alike."""
    return update if factor == 1.0 else update * np.float32(factor)


def _smallest_step(old: Model, new: Model, relay: Relay | None) -> bytes | None:
    """The round as bytes; None where the model itself is smaller."""
    relayed = sum(len(frame) for frame, _ in relay.frames) if relay is not None else 0
    candidates = []
    if relay is not None:
        candidates.append((_FRAMES, relay.factor, list(relay.frames)))
    if relay is None or relayed > _BYTES_A_CHANGE * np.count_nonzero(old.weights != new.weights):
        candidates.append((_DIFFERENCE, 1.0, [(encode_difference(old.weights, new.weights), 1.0)]))
    kind, factor, parts = min(candidates, key=lambda step: sum(len(part) for part, _ in step[2]))
    statistics = encode_float32(new.buffers) if len(new.buffers) else b""
    pieces = [_STEP.pack(kind, factor, len(parts)), _PART.pack(0.0, len(statistics)), statistics]
    for part, weight in parts:
        pieces += [_PART.pack(weight, len(part)), part]
    step = b"".join(pieces)
    return step if len(step) < whole_size(new) else None


def _walk(model: Model, body: bytes, steps: int) -> Model:
    position = 0
    for _ in range(steps):
        kind, factor, count = _STEP.unpack_from(body, position)
        position += _STEP.size
        parts = []
        for _ in range(count + 1):
            weight, length = _PART.unpack_from(body, position)
            position += _PART.size
            if position + length > len(body):
                raise FrameError("A part is longer than the rest of the parcel.")
            parts.append((body[position : position + length], weight))
            position += length
        statistics = decode_float32(parts[0][0], len(model.buffers)) if len(model.buffers) else model.buffers
        if kind == _FRAMES:
            weights = add_up(model.weights, Relay(parts[1:], factor))
        elif kind == _DIFFERENCE and count == 1:
            weights = apply_difference(model.weights, parts[1][0])
        else:
            raise FrameError(f"Unknown kind of step {kind}.")
        model = Model(weights, statistics)
    if position != len(body):
        raise FrameError("The parcel goes on after its last step.")
    return model
