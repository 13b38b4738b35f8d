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
from ..rules.late import error_after
from . import gain
from .arrays import Model, Vector
from .downlink import Change, Exact, Published
from .ledger import Ledger
from .steps import Relay, add_up


@dataclass(frozen=True)
class Late(Exact):
    """The model's change in the coarsest levels that delay it by little; nobody gets another client's frames.

    Where the rule does not say how much may be left for later, the delay is at most a fifth of the rounds so far. It is
    shorter where the measured gain says that clients ask again for what comes late.

    Attributes:
        error: the largest share of the change's energy that is left for later rounds, where the rule does not say.
    """

    error: float = 0.5
    name: ClassVar[str] = "late"

    def __post_init__(self) -> None:
        if not isinstance(self.error, int | float) or isinstance(self.error, bool) or not 0 < self.error < 1:
            raise ConfigError(f"error = {self.error!r}: the share that is left for later is between 0 and 1.")

    def init(self, model: Model) -> dict[str, Any]:
        return {"remainder": np.zeros_like(model.weights), **gain.begin()}

    def gain(self, state: Mapping[str, Any]) -> float | None:
        return gain.of(state)

    def publish(self, old: Model, change: Change, state: dict[str, Any], ledger: Ledger) -> Published:
        error, left = change.error, state["remainder"]
        if error is None:
            error = error_after(change.round + 1, self.error, self.gain(state))
        sums = gain.sums(state, change.update, left)
        total = np.add(change.update, left, out=change.update)  # in place: a model may fill much of the memory
        frame, weights = _sent(old.weights, total, error, change.lengths)
        for start in range(0, len(total), TILE):
            here = slice(start, start + TILE)
            total[here] -= weights[here] - old.weights[here]
        after = {"remainder": total, "sent": gain.sent(old.weights, weights), "sums": sums}
        return Published(Model(weights, change.buffers, change.others), Relay([(frame, 1.0)]), after, ledger)


def _sent(weights: Vector, change: Vector, error: float, lengths: tuple[int, ...]) -> tuple[Frame, Vector]:
    """The frame of what is sent of a change, and the weights with it."""
    levels = quantize_within(change, error, segments=lengths)
    # Codecs are lossless, and the fixed one is added up without memory to decode it.
    frame, fixed = (read_frame(encode(levels, codec)) for codec in ("auto", "fixed"))
    del levels
    return frame, add_up(weights, Relay([(fixed, 1.0)]))
