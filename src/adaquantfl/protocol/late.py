"""The downlink that sends the model's change quantized, once for all clients, and what is left out in later rounds.

Every client, and every evaluation, has the model that was really sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..codecs.coding import compress_within
from ..codecs.frame import read_frame
from ..errors import ConfigError
from ..rules.late import error_after
from . import gain
from .arrays import Model
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

    def publish(self, old: Model, wanted: Model, change: Change, state: dict[str, Any], ledger: Ledger) -> Published:
        total, error = change.update + state["remainder"], change.error
        if error is None:
            error = error_after(change.round + 1, self.error, self.gain(state))
        frame = read_frame(compress_within(total, error, segments=change.lengths, feedback=False)[0])
        relay = Relay([(frame, 1.0)])
        weights = add_up(old.weights, relay)
        sent = weights - old.weights
        total -= sent
        after = {"remainder": total, **gain.after(state, change.update, state["remainder"], sent)}
        return Published(replace(wanted, weights=weights), relay, after, ledger)
