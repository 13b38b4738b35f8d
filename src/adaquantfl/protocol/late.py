"""The downlink that sends the model's change quantized, once for all clients, and what is left out in later rounds.

Every client, and every evaluation, has the model that was really sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..codecs.coding import encode, quantize_within
from ..codecs.frame import TILE, Frame, read_frame
from ..errors import ConfigError
from ..quantizers.registry import find
from ..quantizers.streams import stream_key
from ..rules import Motion
from ..rules.auto import LATER, NOISY
from ..rules.late import delay_after, error_of
from . import motion
from .arrays import Model, Vector
from .downlink import Change, Exact, Log, Published
from .ledger import Ledger
from .steps import Relay, add_up

NOISE = 0.8  # of the change's energy: below 1, so that what is left out of several rounds does not grow
MOMENTUM_NOISE = 0.2  # where the step is not the clients' mean: momentum repeats in later rounds what noise does to one
UNMEASURED_GAIN = 0.25
_NOBODY = 2**32 - 1  # the client whose random numbers the downlink has


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
        return {"remainder": np.zeros_like(model.weights), **motion.begin()}

    def motion(self, state: Mapping[str, Any]) -> Motion:
        return motion.of(state)

    def log(self, log: Log, old: Model, new: Model, relay: Relay | None) -> Log:
        return log.after_round(old, new, relay)  # `publish` has seen to what is private

    def publish(self, old: Model, change: Change, state: dict[str, Any], ledger: Ledger) -> Published:
        seen, left = self.motion(state), state["remainder"]
        gain = seen.gain
        error = min(error_of(delay_after(change.round + 1, gain)) if change.error is None else change.error, self.error)
        measured = motion.after(state, change.update, left, change.energies)
        # What clients ask for twice would grow from round to round.
        twice = (1 + 3 * max(UNMEASURED_GAIN if gain is None else gain, 0.0)) ** 2
        noise = (NOISE if measured["mean"] else MOMENTUM_NOISE) / twice
        random = not seen.measured or error / (1 - error) < noise
        total = np.add(change.update, left, out=change.update)  # in place: a model may fill much of the memory
        frame, fixed = _sent(total, noise if random else error, change, NOISY if random else LATER)
        relay, remainder, theirs = Relay([(frame, 1.0)]), total, change.relay
        if theirs is not None and not self.private and _is_known(change, seen) and _size(theirs) < frame.size:
            relay, remainder, random = theirs, left, False
            weights = add_up(old.weights, relay)
        else:
            weights = add_up(old.weights, Relay([(fixed, 1.0)]))
            for start in range(0, len(total), TILE):
                here = slice(start, start + TILE)
                total[here] -= weights[here] - old.weights[here]
        after = {**measured, "remainder": remainder, "sent": motion.sent(old.weights, weights), "random": random}
        return Published(Model(weights, change.buffers, change.others), relay, after, ledger)


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
