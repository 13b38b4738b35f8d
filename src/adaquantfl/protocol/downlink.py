"""The downlink: what brings a client from the model that it holds to the present one.

`Whole` sends the model in every round. `Exact` sends what leads from the old model to the new one. That is the smallest
of the round's frames, the losslessly coded difference of the two models, and the model. The client adds up frames as
the server did. With `private` it never sends the frames. `lossy.py` has the downlinks that quantize.

A parcel names the digest of the model that it leads to, and the client checks it.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ..codecs.accumulator import Accumulator
from ..codecs.difference import apply_difference, encode_difference
from ..codecs.frame import Bytes
from ..codecs.raw import decode_float32, encode_float32, frame_size
from ..errors import ConfigError, FrameError, ModelNeeded
from ..open_registry import Registry, named_class
from .arrays import Layout, Model, Vector
from .ledger import Ledger

_PARCEL = struct.Struct("<4sBxxxIII16s")  # magic, kind, held round, target round, steps, the target's digest
_MAGIC = b"AQP1"
_WHOLE, _STEPS, _HELD = 0, 1, 2
_STEP = struct.Struct("<BxxxfI")  # kind, what the sum is multiplied by, parts
_FRAMES, _DIFFERENCE = 0, 1
_PART = struct.Struct("<dQ")  # weight, length
_BYTES_PER_CHANGE = 2.5  # of a coded difference, roughly: decides whether it is worth trying


@dataclass(frozen=True)
class Relay:
    """A round's frames with their weights, in the order in which the server added them up, and the sum's factor."""

    frames: Sequence[tuple[bytes, float]]
    factor: float = 1.0  # above 1 where somebody was missing


@dataclass(frozen=True)
class Log:
    """What leads to the present model, and who holds which one.

    steps: the last one leads to the present model. holds: client -> the round whose model it was sent last.
    """

    round: int
    digest: bytes
    steps: tuple[bytes, ...] = ()
    holds: Mapping[int, int] = field(default_factory=dict)

    def after_round(self, old: Model, new: Model, relay: Relay | None) -> Log:
        """One step more. relay: the round's frames, or None where the client cannot add them up."""
        step = _smallest_step(old, new, relay)
        steps = (*self.steps, step) if step is not None else ()
        while steps and sum(map(len, steps)) >= whole_size(new):
            steps = steps[1:]
        return replace(self, round=self.round + 1, digest=digest_of(new), steps=steps)

    def parcel(self, held: int | None, model: Model) -> bytes:
        """What brings a client from the model of round `held` (None: it has none) to the present one."""
        missed = self._missed(held)
        if missed is None:
            head = _PARCEL.pack(_MAGIC, _WHOLE, 0, self.round, 0, self.digest)
            return b"".join((head, encode_float32(model.weights), _untouched(model)))
        return b"".join((_PARCEL.pack(_MAGIC, _STEPS, held or 0, self.round, len(missed), self.digest), *missed))

    def leads_from(self, held: int) -> bool:
        """Whether the steps from the model of that round are known, and smaller than the model."""
        return self._missed(held) is not None

    def sent_to(self, clients: Collection[int], missing: Collection[int] = ()) -> Log:
        """These clients were sent the model before the present one; of who is missing since, nothing is known."""
        return replace(self, holds={**self.holds, **dict.fromkeys(clients, self.round - 1)}).lost_by(missing)

    def held_by(self, clients: Iterable[int]) -> Log:
        """These clients hold the present model."""
        return replace(self, holds={**self.holds, **dict.fromkeys(clients, self.round)})

    def lost_by(self, clients: Collection[int]) -> Log:
        """Of what these clients hold, nothing is known."""
        return replace(self, holds={client: round for client, round in self.holds.items() if client not in clients})

    def _missed(self, held: int | None) -> tuple[bytes, ...] | None:
        """The steps from `held` to now; None where they are not known or the model is smaller."""
        behind = self.round - held if held is not None else -1
        return self.steps[len(self.steps) - behind :] if 0 <= behind <= len(self.steps) else None


@dataclass(frozen=True)
class Change:
    """A round's change of the model. relay: the frames that it is the sum of, where it is nothing but their sum."""

    update: Vector
    relay: Relay | None
    lengths: tuple[int, ...]
    round: int
    seed: int
    loss: float | None
    eta: float


@dataclass(frozen=True)
class Published:
    """What a downlink makes of a round's update: the model that clients get, and what leads there.

    state: what the downlink carries to the next round; it is part of what a rule can roll back.
    """

    model: Model
    relay: Relay | None
    state: dict[str, Any]
    ledger: Ledger


@dataclass(frozen=True)
class Whole:
    """The model itself, in every round."""

    name: ClassVar[str] = "model"

    def init(self, model: Model) -> dict[str, Any]:
        """What it carries from round to round."""
        return {}

    def gain(self, state: Mapping[str, Any]) -> float | None:
        """What share of a part that was left out clients ask for again, where the downlink measures it."""
        return None

    def log(self, log: Log, old: Model, new: Model, relay: Relay | None) -> Log:
        """The log after a round."""
        return replace(log, round=log.round + 1, digest=digest_of(new), steps=())

    def publish(self, old: Model, wanted: Model, change: Change, state: dict[str, Any], ledger: Ledger) -> Published:
        """What the clients get instead of the wanted model."""
        return Published(wanted, change.relay, state, ledger)


@dataclass(frozen=True)
class Exact(Whole):
    """What leads from the old model to the new one, bit for bit.

    private: clients never get each other's frames, only the difference of the two models or the model itself.
    """

    private: bool = field(default=False, kw_only=True)
    name: ClassVar[str] = "exact"

    def log(self, log: Log, old: Model, new: Model, relay: Relay | None) -> Log:
        return log.after_round(old, new, None if self.private else relay)


def _built_in() -> Iterable[type[Whole]]:
    from .lossy import Late, Lossy  # they are made from this file's classes

    return Whole, Exact, Lossy, Late


DOWNLINKS: Registry[type[Whole]] = Registry(
    "downlink", "adaquantfl.downlinks", _built_in, named_class(Whole, ConfigError), ConfigError
)


@dataclass(frozen=True, eq=False)
class Held:
    """A model at a client, the round that it belongs to, and its digest."""

    round: int
    model: Model
    digest: bytes
    layout: Layout


def open_parcel(parcel: Bytes, held: Held | None, layout: Layout | None) -> Held:
    """The model that a parcel leads to. ModelNeeded where the client must ask for the whole model."""
    if len(parcel) < _PARCEL.size:
        raise FrameError("The parcel is shorter than its header.")
    magic, kind, start, target, steps, digest = _PARCEL.unpack_from(parcel)
    if magic != _MAGIC or kind not in (_WHOLE, _STEPS, _HELD):
        raise FrameError("The parcel does not begin as one of this version does.")
    if held is not None and held.digest == digest:
        return replace(held, round=target)
    body = parcel[_PARCEL.size :]
    try:
        if kind == _WHOLE:
            if layout is None:
                raise ModelNeeded("The order has no layout, and this client does not know the model's.")
            split = frame_size(layout.dimension)
            model = Model(decode_float32(body[:split], layout.dimension), *_read_untouched(body[split:], layout))
        else:
            if held is None or kind == _HELD or held.round != start:
                has = "no model" if held is None else f"the model of round {held.round}"
                wants = f"the model of round {target if kind == _HELD else start}"
                raise ModelNeeded(f"The order starts from {wants}, but this client has {has}.")
            layout, model = held.layout, _walk(held.model, body, steps, held.layout)
    except struct.error as error:
        raise FrameError(f"The parcel is malformed: {error}") from None
    if digest_of(model) != digest:
        raise ModelNeeded(f"The model of round {target} has another digest here than at the server.")
    if not layout.is_finite(model):
        raise FrameError(f"The model of round {target} has a value that is NaN or infinite.")
    return Held(target, model, digest, layout)


def digest_in(parcel: Bytes) -> bytes:
    """The digest of the model that a parcel leads to: a carrier that knows that it is there can send less."""
    if len(parcel) < _PARCEL.size:
        raise FrameError("The parcel is shorter than its header.")
    return bytes(_PARCEL.unpack_from(parcel)[-1])


def held_parcel(parcel: Bytes) -> bytes:
    """A parcel that only names the model, for a receiver that holds it."""
    _, _, _, target, _, digest = _PARCEL.unpack_from(parcel)
    return _PARCEL.pack(_MAGIC, _HELD, target, target, 0, digest)


def digest_of(model: Model) -> bytes:
    """Of all parts of a model, so that who holds the same one can tell."""
    digest = hashlib.sha256(np.ascontiguousarray(model.weights, dtype="<f4").data)
    digest.update(np.ascontiguousarray(model.buffers, dtype="<f4").data)
    digest.update(model.others)
    return digest.digest()[:16]


def whole_size(model: Model) -> int:
    """Bytes of the model as it is."""
    buffers = frame_size(len(model.buffers)) if len(model.buffers) else 0
    return frame_size(len(model.weights)) + buffers + len(model.others)


def add_up(weights: Vector, relay: Relay) -> Vector:
    """w + sum of p_i Q(update_i), on the server and on the client alike: the same calls give the same bits (eq. 3)."""
    total = Accumulator(len(weights))
    for frame, weight in relay.frames:
        total.add(frame, weight)
    return weights + rescaled(total.result(), relay.factor)


def rescaled(update: Vector, factor: float) -> Vector:
    """A sum over those who answered instead of the sum over all: one function, so that both sides round alike."""
    return update if factor == 1.0 else update * np.float32(factor)


def _untouched(model: Model) -> bytes:
    """The parts that are not quantized."""
    return (encode_float32(model.buffers) if len(model.buffers) else b"") + model.others


def _read_untouched(data: Bytes, layout: Layout) -> tuple[Vector, bytes]:
    split = frame_size(layout.buffers) if layout.buffers else 0
    if len(data) - split != layout.other_bytes:
        raise FrameError("The arrays that travel as they are have not the size that the layout says.")
    buffers = decode_float32(data[:split], layout.buffers) if split else np.empty(0, dtype=np.float32)
    return buffers, bytes(data[split:])


def _smallest_step(old: Model, new: Model, relay: Relay | None) -> bytes | None:
    """The round as bytes; None where the model itself is smaller."""
    relayed = sum(len(frame) for frame, _ in relay.frames) if relay is not None else 0
    candidates = []
    if relay is not None:
        candidates.append((_FRAMES, relay.factor, list(relay.frames)))
    if relay is None or relayed > _BYTES_PER_CHANGE * np.count_nonzero(old.weights != new.weights):
        candidates.append((_DIFFERENCE, 1.0, [(encode_difference(old.weights, new.weights), 1.0)]))
    kind, factor, parts = min(candidates, key=lambda step: sum(len(part) for part, _ in step[2]))
    statistics = _untouched(new)
    pieces = [_STEP.pack(kind, factor, len(parts)), _PART.pack(0.0, len(statistics)), statistics]
    for part, weight in parts:
        pieces += [_PART.pack(weight, len(part)), part]
    step = b"".join(pieces)
    return step if len(step) < whole_size(new) else None


def _walk(model: Model, body: Bytes, steps: int, layout: Layout) -> Model:
    position = 0
    for _ in range(steps):
        kind, factor, count = _STEP.unpack_from(body, position)
        if not 0 < factor < math.inf:
            raise FrameError(f"A step has the factor {factor}, which is not above 0 and finite.")
        position += _STEP.size
        parts = []
        for _ in range(count + 1):
            weight, length = _PART.unpack_from(body, position)
            position += _PART.size
            if position + length > len(body):
                raise FrameError("A part is longer than the rest of the parcel.")
            parts.append((bytes(body[position : position + length]), weight))
            position += length
        if kind == _FRAMES:
            weights = add_up(model.weights, Relay(parts[1:], factor))
        elif kind == _DIFFERENCE and count == 1:
            weights = apply_difference(model.weights, parts[1][0])
        else:
            raise FrameError(f"Unknown kind of step {kind}.")
        model = Model(weights, *_read_untouched(parts[0][0], layout))
    if position != len(body):
        raise FrameError("The parcel has more bytes after its last step.")
    return model
