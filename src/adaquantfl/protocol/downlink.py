"""The downlink: what brings a client from the model that it holds to the present one.

`Whole` sends the model in every round. `Exact` sends what leads from the old model to the new one. That is the smallest
of the round's frames, the losslessly coded difference of the two models, and the model. The client adds up frames as
the server did. With `private` it never sends the frames. `late.py` has the downlink that quantizes.

A parcel names the digest of the model that it leads to, and the client checks it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ..codecs.coding import encode, quantize_within
from ..codecs.frame import Bytes, read_frame
from ..codecs.raw import decode_float32, encode_float32, frame_size
from ..errors import ConfigError, FrameError, ModelNeeded, called, place_of
from ..open_registry import Registry, named_class
from ..rules import Energies, Motion
from .arrays import Layout, Model, Vector
from .ledger import Ledger
from .steps import Relay, add_up, may_follow, read_untouched, smallest_step, untouched, walk

_PARCEL = struct.Struct("<4sBxxxIII16s")  # magic, kind, held round, target round, steps, the target's digest
_MAGIC = b"AQP1"
_WHOLE, _STEPS, _FROM_ZERO = 0, 1, 2
_ZERO = bytes(16)  # in place of a digest: the step starts from a model of zeros, which everybody has
_FRESH_ERROR = 1e-3  # of the energy of the first weights: training starts as well from these as from others


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
class Change:
    """A round's change of the model.

    Attributes:
        update: what is added to the weights. A downlink may overwrite it.
        buffers: of the new model.
        others: of the new model.
        relay: the frames that the update is the sum of, where it is nothing but their sum.
        lengths: of the tensors.
        round: the round, counted from 0.
        error: the share of it that may be left for later rounds, where the rule says so.
        weights: the new ones, where they are not simply the sum.
        energies: of the clients' updates, where they were measured.
    """

    update: Vector
    buffers: Vector
    others: bytes
    relay: Relay | None
    lengths: tuple[int, ...]
    round: int
    error: float | None = None
    weights: Vector | None = None
    energies: Energies | None = None

    def wanted(self, old: Model) -> Model:
        """Return the model after the change."""
        return Model(old.weights + self.update if self.weights is None else self.weights, self.buffers, self.others)


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

    def motion(self, state: Mapping[str, Any]) -> Motion | None:
        """What the model's last steps say about training, where the downlink measures it."""
        return None

    def log(self, log: Log, old: Model, new: Model, relay: Relay | None) -> Log:
        """The log after a round."""
        return replace(log, round=log.round + 1, digest=digest_of(new), steps=(), starts=())

    def publish(self, old: Model, change: Change, state: dict[str, Any], ledger: Ledger) -> Published:
        """What the clients get: here the wanted model itself."""
        return Published(change.wanted(old), change.relay, state, ledger)


@dataclass(frozen=True)
class Exact(Whole):
    """What leads from the old model to the new one, bit for bit.

    private: clients never get each other's frames, only the difference of the two models or the model itself.
    """

    private: bool = field(default=False, kw_only=True)
    name: ClassVar[str] = "exact"

    def log(self, log: Log, old: Model, new: Model, relay: Relay | None) -> Log:
        return log.after_round(old, new, None if self.private else relay)


def published(downlink: Whole, layout: Layout, old: Model, *rest: Any) -> Published:
    """What `downlink.publish` makes of a round, checked: a downlink may be the user's own."""
    made: Any = called(f"The downlink {downlink.name!r}", downlink.publish, old, *rest)
    where = f"The downlink {downlink.name!r}: publish{place_of(downlink.publish)} returned"
    if not (isinstance(made, Published) and isinstance(made.model, Model)):
        raise ConfigError(
            f"{where} {type(made).__name__}, expected a Published with a model, such as super().publish(...)."
        )
    sizes = [np.shape(one) for model in (made.model, old) for one in (model.weights, model.buffers)]
    if sizes[:2] != sizes[2:] or len(made.model.others) != len(old.others):
        raise ConfigError(f"{where} a model of shapes {sizes[:2]}, expected {sizes[2:]}.")
    if not layout.is_finite(made.model):
        raise ConfigError(f"{where} a model with NaN or infinity, made of one that is finite.")
    return made


def _built_in() -> Iterable[type[Whole]]:
    from .late import Late  # it is made from this file's classes

    return Whole, Exact, Late


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
    if magic != _MAGIC or kind not in (_WHOLE, _STEPS, _FROM_ZERO):
        raise FrameError("The parcel does not begin as one of this version does.")
    if held is not None and held.digest == digest:
        return replace(held, round=target)
    body = parcel[_PARCEL.size :]
    try:
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
    except struct.error as error:
        raise FrameError(f"The parcel is malformed: {error}") from None
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
