"""Downlinks that send the model's change quantized, once for all clients, and what is lost in later rounds.

Every client, and every evaluation, has the model that was really sent. `Lossy` has a number of levels that follows the
paper's rule. `Late` takes the coarsest levels that delay the model by little: see `rules.auto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..codecs.coding import compress
from ..codecs.frame import read_frame
from ..errors import ConfigError
from ..quantizers.choice import levels_for_error
from ..quantizers.registry import find
from ..quantizers.segments import bucket_lengths
from ..quantizers.streams import stream_key
from ..rules import AdaQuant, RuleState
from ..rules.auto import error_after
from . import gain
from .arrays import Model
from .downlink import Change, Exact, Published
from .ledger import Ledger
from .steps import Relay, add_up

LOSSY_BUCKET = 256  # elements; error feedback needs a quantizer that loses less than it keeps: short buckets
_SERVER = -3  # in place of a client: the stream of the server's own quantizer


@dataclass(frozen=True)
class Lossy(Exact):
    """The model's change, quantized once for all clients. s0: levels at the start, which then follow the paper's rule.

    For many clients, where passing on every frame no longer pays.
    """

    s0: int = 32
    interval: float = 16.0
    guard: bool = True
    name: ClassVar[str] = "lossy"

    def init(self, model: Model) -> dict[str, Any]:
        return {"remainder": np.zeros_like(model.weights), "rule": self._rule.init().to_dict()}

    def publish(self, old: Model, wanted: Model, change: Change, state: dict[str, Any], ledger: Ledger) -> Published:
        d = len(old.weights)
        loss = change.loss if change.loss is not None and change.loss > 0 else None  # s stays where it says nothing
        rule = self._rule.plan(
            RuleState(**state["rule"]), bits=ledger.paper_bits_down, dimension=d, loss=loss, eta=change.eta
        )
        assert rule.s is not None
        s, total, segments = int(rule.s), change.update + state["remainder"], bucket_lengths(d, LOSSY_BUCKET)
        frame = compress(total, s, stream_key(change.seed, change.round, _SERVER), segments=segments)
        relay = Relay([(read_frame(frame), 1.0)])
        weights = add_up(old.weights, relay)
        after = {"remainder": total - (weights - old.weights), "rule": rule.to_dict()}
        return Published(replace(wanted, weights=weights), relay, after, ledger.after_broadcast(d, s, len(segments)))

    @property
    def _rule(self) -> AdaQuant:
        return AdaQuant(self.s0, self.interval, self.guard)


@dataclass(frozen=True)
class Late(Exact):
    """The model's change in the coarsest levels that delay it by at most a fifth of the rounds so far.

    The delay is shorter where the measured gain says that clients ask again for what comes late.

    error: the largest share of the change's energy that is left for later rounds. Nobody gets another client's frames.
    """

    error: float = 0.5
    name: ClassVar[str] = "late"

    def __post_init__(self) -> None:
        if not isinstance(self.error, int | float) or isinstance(self.error, bool) or not 0 < self.error < 1:
            raise ConfigError(f"error = {self.error!r}: the share that is left for later is between 0 and 1.")

    def init(self, model: Model) -> dict[str, Any]:
        return {"remainder": np.zeros_like(model.weights), **gain.begin()}

    def gain(self, state: Mapping[str, Any]) -> float | None:
        return gain.of(gain.begin() | dict(state))  # a state of an earlier version has no sums

    def publish(self, old: Model, wanted: Model, change: Change, state: dict[str, Any], ledger: Ledger) -> Published:
        total, quantizer, segments = change.update + state["remainder"], find("fitted"), np.array(change.lengths)
        norm, error = quantizer.norm(None), error_after(change.round + 1, self.error, self.gain(state))
        s, stretch = quantizer.levels_for(
            levels_for_error(quantizer, total, error, 0, segments, norm, balanced=True), segments, total, balanced=True
        )
        relay = Relay([(read_frame(compress(total, s, 0, "auto", segments, stretch, quantizer, norm)), 1.0)])
        weights = add_up(old.weights, relay)
        sent = weights - old.weights
        after = {"remainder": total - sent, **gain.after(gain.begin() | state, change.update, state["remainder"], sent)}
        count = len(change.lengths)
        return Published(replace(wanted, weights=weights), relay, after, ledger.after_broadcast(len(total), s, count))
