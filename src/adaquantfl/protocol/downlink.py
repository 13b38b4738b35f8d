"""The downlink: what the clients get in place of the round's new model, and what is noted of it.

`Whole` sends the model in every round. `Exact` sends what leads from the old model to the new one. That is the smallest
of the round's frames, the losslessly coded difference of the two models, and the model. With `private` it never sends
the frames. `Late` sends the model's change quantized, once for all clients, and what is left out in later rounds. Every
client, and every evaluation, has the model that was really sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..codecs.coding import encode, quantize_within
from ..codecs.frame import TILE, Frame, read_frame
from ..errors import ConfigError, called, returned
from ..open_registry import Registry, named_class
from ..quantizers.registry import find
from ..quantizers.streams import stream_key
from ..rules import Energies, Motion
from ..rules.auto import LATER, NOISY, delay_after, error_of
from . import bfloat16, motion
from .arrays import Layout, Model, Vector
from .parcels import Log, Relay, add_up, digest_of

NOISE = 0.8  # of the change's energy: below 1, so that what is left out of several rounds does not grow
MOMENTUM_NOISE = 0.2  # where the step is not the clients' mean: momentum repeats in later rounds what noise does to one
UNMEASURED_GAIN = 0.25
_PIECE = TILE // 4  # elements that are rounded at a time
_NOBODY = 2**32 - 1  # the client whose random numbers the downlink has


@dataclass(frozen=True)
class Change:
    """A round's change of the model.

    Attributes:
        update: what is added to the weights. A downlink may overwrite it, and take its memory.
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

    state: what the downlink carries to the next round; it is rolled back with the model.
    """

    model: Model
    relay: Relay | None
    state: dict[str, Any]


@dataclass(frozen=True)
class Whole:
    """The model itself, in every round."""

    name: ClassVar[str] = "model"

    def init(self, model: Model) -> dict[str, Any]:
        """What it carries from round to round."""
        return {}

    def check(self, state: Mapping[str, Any], dimension: int) -> None:
        """Raise a ValueError where a state that was read is not one of this downlink, for a model of d elements."""

    def motion(self, state: Mapping[str, Any]) -> Motion | None:
        """What the model's last steps say about training, where the downlink measures it."""
        return None

    def log(self, log: Log, old: Model, new: Model, relay: Relay | None) -> Log:
        """The log after a round."""
        return replace(log, round=log.round + 1, digest=digest_of(new), steps=(), starts=())

    def publish(self, old: Model, change: Change, state: dict[str, Any]) -> Published:
        """What the clients get: here the wanted model itself."""
        return Published(change.wanted(old), None, state)


@dataclass(frozen=True)
class Exact(Whole):
    """What leads from the old model to the new one, bit for bit.

    private: clients never get each other's frames, only the difference of the two models or the model itself.
    """

    private: bool = field(default=False, kw_only=True)
    name: ClassVar[str] = "exact"

    def log(self, log: Log, old: Model, new: Model, relay: Relay | None) -> Log:
        return log.after_round(old, new, relay)

    def publish(self, old: Model, change: Change, state: dict[str, Any]) -> Published:
        return Published(change.wanted(old), None if self.private else change.relay, state)


@dataclass(frozen=True)
class Late(Exact):
    """The model's change in coarse levels; the rest is sent in later rounds.

    At first the change has unbiased noise, which delays nothing and is corrected in the next round. Once a delay saves
    more bytes, and the server has measured what noise does to training, only the largest part of the change is sent. If
    the frames of the round's clients are smaller, the server passes them on instead; with `private` it never does.

    Attributes:
        error: the largest share of the change's energy that is left for later rounds.
    """

    error: float = 0.8
    name: ClassVar[str] = "late"

    def __post_init__(self) -> None:
        if not isinstance(self.error, int | float) or isinstance(self.error, bool) or not 0 < self.error < 1:
            raise ConfigError(f"error = {self.error!r}: the share that is left for later is between 0 and 1.")

    def init(self, model: Model) -> dict[str, Any]:
        return {"remainder": np.zeros(len(model.weights), dtype=np.uint16), **motion.begin()}

    def check(self, state: Mapping[str, Any], dimension: int) -> None:
        remainder = state["remainder"]
        if remainder.dtype != np.uint16 or remainder.shape != (dimension,):
            raise ValueError(f"a remainder of {remainder.dtype} in the shape {remainder.shape}, not {dimension} uint16")
        motion.check(state, dimension)

    def motion(self, state: Mapping[str, Any]) -> Motion:
        return motion.of(state)

    def publish(self, old: Model, change: Change, state: dict[str, Any]) -> Published:
        seen, left = self.motion(state), bfloat16.of_bits(state["remainder"])
        gain = seen.gain
        error = min(error_of(delay_after(change.round + 1, gain)) if change.error is None else change.error, self.error)
        measured = motion.after(state, change.update, left, change.energies)
        # What clients ask for twice would grow from round to round.
        twice = (1 + 3 * max(UNMEASURED_GAIN if gain is None else gain, 0.0)) ** 2
        noise = (NOISE if measured["mean"] else MOMENTUM_NOISE) / twice
        random = not seen.measured or error / (1 - error) < noise
        total = np.add(change.update, left, out=change.update)  # in place: a model may fill much of the memory
        del left
        frame, fixed = _sent(total, noise if random else error, change, NOISY if random else LATER)
        relay, remainder, theirs = Relay([(frame, 1.0)]), state["remainder"], change.relay
        if theirs is not None and not self.private and _is_known(change, seen) and _size(theirs) < frame.size:
            relay, random = theirs, False
            weights = add_up(old.weights, relay)
        else:
            weights = add_up(old.weights, Relay([(fixed, 1.0)]))
            del fixed
            remainder = _left_of(total, old.weights, weights)
        after = {**measured, "remainder": remainder, "sent": motion.sent(old.weights, weights), "random": random}
        return Published(Model(weights, change.buffers, change.others), relay, after)


def _left_of(total: Vector, old: Vector, new: Vector) -> npt.NDArray[np.uint16]:
    """What was not sent of a change, as bits of bfloat16 in the change's own memory, of which the rest is freed."""
    total = total if total.flags.owndata else total.copy()  # a downlink of one's own may hand on a view
    bits, size = total.view(np.uint16), len(total)
    for start in range(0, size, _PIECE):  # a piece is written behind what was read
        here = slice(start, start + _PIECE)
        bits[start : min(start + _PIECE, size)] = bfloat16.bits_of(total[here] - (new[here] - old[here]))
    del bits
    total.resize(-(-size // 2), refcheck=False)  # nobody has a view of it
    return total.view(np.uint16)[:size]


def _is_known(change: Change, seen: Motion) -> bool:
    """Whether the round need not show what noise does to training, because a rule knows it or does not ask."""
    return change.energies is None or (seen.measured and change.round & (change.round + 1) != 0)


def _sent(total: Vector, error: float, change: Change, quantizer: str) -> tuple[Frame, Frame]:
    """The frame of what is sent of a change, and one with the same levels that takes little memory to add up."""
    key = stream_key(0, change.round, _NOBODY)
    levels = quantize_within(total, error, key, change.lengths, quantizer)
    frame = read_frame(encode(levels))
    linear = find(quantizer).traits.linear
    return frame, read_frame(encode(levels, "fixed")) if linear else frame


def _size(relay: Relay) -> int:
    return sum(frame.size for frame, _ in relay.frames)


def published(downlink: Whole, layout: Layout, old: Model, change: Change, state: dict[str, Any]) -> Published:
    """What `downlink.publish` makes of a round, checked: a downlink may be the user's own."""
    made: Any = called(f"The downlink {downlink.name!r}", downlink.publish, old, change, state)
    if not (isinstance(made, Published) and isinstance(made.model, Model)):
        expected = "a Published with a model, such as super().publish(...)"
        raise ConfigError(returned(downlink.publish, made, expected))
    sizes = [np.shape(one) for model in (made.model, old) for one in (model.weights, model.buffers)]
    if sizes[:2] != sizes[2:] or len(made.model.others) != len(old.others):
        raise ConfigError(returned(downlink.publish, sizes[:2], str(sizes[2:]), "a model of shapes "))
    if not layout.is_finite(made.model):
        weights = made.model.weights
        raise ConfigError(returned(downlink.publish, weights, "one that is finite", "a model with NaN or infinity "))
    return made


DOWNLINKS: Registry[type[Whole]] = Registry(
    "downlink", "adaquantfl.downlinks", lambda: (Whole, Exact, Late), named_class(Whole, ConfigError), ConfigError
)
