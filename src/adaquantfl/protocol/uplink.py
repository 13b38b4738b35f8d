"""The uplink: an update becomes a frame by the round's quantizer and codec (eq. 4); frames are checked on arrival.

With error feedback a client adds what it left out of an update to the next one. The server may roll rounds back. What a
client left out in such a round then does not count, so it keeps its remainder from before each of its last rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..codecs import registry as codecs
from ..codecs.accumulator import Checked
from ..codecs.coding import compress, encode
from ..codecs.frame import FLOAT32, Header, read_frame
from ..codecs.raw import encode_float32
from ..errors import ConfigError, FrameError
from ..quantizers import registry as quantizers
from ..quantizers.balanced import balanced_range
from ..quantizers.base import (
    Count,
    MaxError,
    Quantizer,
    Resolution,
    Target,
    can_send,
    norm_of,
    norms_of,
)
from ..quantizers.levels import Levels, quantize, try_out
from ..quantizers.segments import scope_segments
from ..rules import Plan
from ..theory import MAX_LEVELS
from . import trees
from .arrays import Layout, Vector
from .messages import ERROR, LEVELS, RESOLUTION, Order

_TARGETS: Mapping[str, Callable[[float], Target]] = {LEVELS: Count, ERROR: MaxError, RESOLUTION: Resolution}
MOST_UPDATE_NORM = 2.0**96  # that a client sends
MOST_VALUE = 2.0**112  # that a frame may decode to: sums of any number of such updates are finite
LEAST_NUMBER, MOST_NUMBER = 2.0**-96, 2.0**32  # of levels, or of what a rule has in their place, in an order
ROUNDS_KEPT = 2  # the server takes at most the last two rounds back


@dataclass(frozen=True)
class Uplink:
    """The user's settings of the uplink; what is not set is the plan's.

    Attributes:
        quantizer: as `aq.compress` takes it; None leaves it to the rule.
        norm: "l2" or "linf"; "" is the quantizer's usual one.
        scope: a norm for each "tensor", for the "whole" update, or for buckets of a number of elements. "balanced" is
            "tensor" with more levels for small tensors.
        codec: as `aq.compress` takes it.
        sparsity: of quantizers without levels: one element in this many is sent.
        feedback: clients add what they left out to their next update; None leaves it to the rule.
    """

    quantizer: Quantizer | None = None
    norm: str = ""
    scope: str | int = "tensor"
    codec: str = "auto"
    sparsity: int = 1
    feedback: bool | None = None

    def __post_init__(self) -> None:
        scope_segments(self.scope, [1])
        codecs.find(self.codec)
        if not isinstance(self.feedback, bool | None):
            raise ConfigError(f"feedback = {self.feedback!r}: expected True, False or None.")
        if not isinstance(self.norm, str):
            raise ConfigError(f"norm = {self.norm!r}: expected 'l2', 'linf' or ''.")

    def kind(self, plan: Plan) -> tuple[Quantizer, str]:
        """The quantizer of a round and its norm. The user's norm is for the user's quantizer."""
        if not plan.quantizer:
            kind = self.quantizer or quantizers.find("uniform")
            return kind, norm_of(kind, self.norm or None)
        kind = quantizers.find(plan.quantizer)
        return kind, norm_of(kind, self.norm if self.quantizer is None and self.norm in norms_of(kind) else None)

    def check_first(self, plan: Plan, rule: str) -> None:
        """Check the settings by the plan of a first round, before there is one."""
        kind, _ = self.kind(plan)
        try_out(kind)
        if self.norm and self.norm not in norms_of(kind):
            norm_of(kind, self.norm)  # says which ones there are
        self.check(plan, rule)

    def check(self, plan: Plan, rule: str) -> None:
        """Refuse a quantizer that does not go with what the rule plans. ConfigError."""
        kind, _ = self.kind(plan)
        if self.scope == "balanced" and not kind.traits.balanced:
            raise ConfigError(f"scope = 'balanced' does not go with quantizer = {kind.name!r}: use 'tensor'.")
        if (plan.max_error or plan.resolution) and not kind.traits.follows_rule:
            raise ConfigError(
                f"quantizer = {kind.name!r} has no levels that a client could choose by {rule!r}: use it with "
                "Fixed(bits=1), or choose another quantizer."
            )

    def order(self, plan: Plan) -> dict[str, Any]:
        """What an order says of the uplink, except for the number of levels."""
        kind, norm = self.kind(plan)
        feedback = next(one for one in (plan.feedback, self.feedback, kind.traits.feedback) if one is not None)
        balanced = self.scope == "balanced" or (plan.balanced and self.scope == "tensor" and kind.traits.balanced)
        return {
            "quantizer": kind.tags[norm],
            "codec": self.codec,
            "scope": "tensor" if self.scope == "balanced" else self.scope,
            "balanced": balanced,
            "feedback": feedback and plan.quantized,
        }

    def target(self, plan: Plan, client: int, caution: float) -> tuple[float | None, str]:
        """A client's number, and what it is a number of. caution: how many times the rule's levels are used."""
        if plan.max_error is not None:
            return plan.max_error, ERROR
        if plan.resolution is not None:
            return plan.resolution, RESOLUTION
        s = plan.levels[client] if isinstance(plan.levels, Mapping) else plan.levels
        kind, _ = self.kind(plan)
        if s is not None and not kind.traits.follows_rule:
            return (self.sparsity if kind.traits.own_levels else 1), LEVELS
        return (s if s is None or caution == 1 else min(s * caution, float(MAX_LEVELS))), LEVELS

    def scales(self, lengths: tuple[int, ...]) -> int:
        """How many norms the paper's formula counts."""
        segments = scope_segments(self.scope, lengths)
        return 1 if segments is None else len(segments)


def check(frame: bytes, weight: float, order: Order, layout: Layout) -> Checked:
    """A frame as the order asked for it: its quantizer, its levels and its segments. FrameError otherwise."""
    lengths = layout.lengths
    parsed = read_frame(frame, layout.dimension, order.known(lengths))
    _check_header(parsed.header, order, lengths)
    checked = Checked.of(parsed, weight)
    if checked.largest > MOST_VALUE:
        raise FrameError(f"Its values could reach {checked.largest:g}, above {MOST_VALUE:g}; training has diverged.")
    return checked


def check_order(order: Order) -> None:
    """Refuse numbers that nobody can work with, and a quantizer or codec that is not there: FrameError."""
    if order.eta < 0 or not LEAST_NUMBER <= (1.0 if order.s is None else order.s) <= MOST_NUMBER:
        raise FrameError("The order has a number of levels that is not above 0, tiny or enormous, or a negative eta.")
    if order.s is not None:
        quantizers.by_tag(order.quantizer)
        codecs.find(order.codec)


def _check_header(header: Header, order: Order, lengths: tuple[int, ...]) -> None:
    """Before the body is looked at: it may cost much."""
    if order.s is None:
        if header.quantizer != FLOAT32:
            raise FrameError("It has levels, but the round's plan says float32.")
        return
    quantizer, norm = quantizers.by_tag(order.quantizer)
    if header.quantizer != order.quantizer:
        raise FrameError(f"It was not made by {quantizer.name} with norm {norm!r}, as the plan says.")
    if order.target == LEVELS:
        least, most = _levels(quantizer, order, order.s, lengths)
        if not least <= header.s <= most:
            asked = f"s = {least}" if least == most else f"s from {least} to {most}"
            raise FrameError(f"It has s = {header.s}, but the round's plan says {asked}.")
    if not can_send(quantizer.traits, header.segments, order.segments(lengths), header.dimension):
        raise FrameError("Its segments are not those of the round's plan.")


def _levels(quantizer: Quantizer, order: Order, planned: float, lengths: tuple[int, ...]) -> tuple[int, int]:
    """The least and the most s that a frame of the round can have; balanced levels depend on the update."""
    if quantizer.traits.feedback:  # balanced or not, s is the same
        order = replace(order, balanced=False)
    s, _ = levels_for(quantizer, order, Count(planned), lengths, None)
    return (s, s) if s is not None else balanced_range(planned, max(lengths), quantizer.traits.most)


def levels_for(
    quantizer: Quantizer,
    order: Order,
    target: Target,
    lengths: tuple[int, ...],
    update: Vector | None,
    key: int = 0,
    norm: str = "",
) -> tuple[int | None, Any]:
    """A target as `compress` takes it: s and stretch. None where the update decides s."""
    segments = order.segments(lengths)
    if order.balanced and quantizer.traits.balanced_by_update and update is None:
        return None, 1.0
    runs = np.array([sum(lengths)]) if segments is None else segments
    return quantizer.levels_for(target, runs, update, order.balanced and segments is not None, key, norm)


def send(update: Vector, order: Order, layout: Layout, keep_levels: bool, key: int) -> tuple[bytes, Levels | None]:
    """An update as a frame that leaves out what the order says; and the levels in it, where they are needed.

    keep_levels: whether the caller needs what the frame decodes to. key: of the client's random stream.
    """
    if order.s is None:
        return encode_float32(update), None
    (quantizer, norm), lengths = quantizers.by_tag(order.quantizer), layout.lengths
    segments = order.segments(lengths)
    target = _TARGETS[order.target](order.s)
    s, stretch = levels_for(quantizer, order, target, lengths, update, key, norm)
    assert s is not None
    if not keep_levels:
        known = order.known(lengths)
        return compress(update, s, key, order.codec, segments, stretch, quantizer, norm or None, known), None
    levels = quantize(update, s, key, segments, stretch, quantizer, norm or None)
    return encode(levels, order.codec, order.known(lengths)), levels


@dataclass(frozen=True, eq=False)
class Remainder:
    """What a client left out so far (None: nothing), and before each of its last rounds: (round, remainder)."""

    value: Vector | None = None
    before: tuple[tuple[int, Vector | None], ...] = ()

    @property
    def known(self) -> bool:
        """Whether anything was ever left out."""
        return self.value is not None or bool(self.before)

    def before_round(self, round: int, taken_back: Collection[int] = ()) -> Remainder:
        """Return the remainder to begin a round with, as if the rounds taken back had not been.

        A round that is asked for again, such as by a server that was restored, counts once.
        """
        for place, (earlier, value) in enumerate(self.before):
            if earlier in taken_back or earlier >= round:
                return Remainder(value, self.before[:place])
        return self

    def of_length(self, dimension: int) -> Remainder:
        """This remainder, or none where it is that of a model with another number of elements."""
        kept = [value for value in (self.value, *(value for _, value in self.before)) if value is not None]
        return self if all(len(value) == dimension for value in kept) else Remainder()

    def all_sent(self, round: int) -> Remainder:
        """The remainder after a round that left nothing out. Nothing is kept once no round can be taken back."""
        if self.value is not None:
            return self.after(round, None)
        return Remainder() if self.before and round - self.before[-1][0] > ROUNDS_KEPT else self

    def after(self, round: int, left_out: Vector | None) -> Remainder:
        """The remainder after a round. left_out: None where all was sent."""
        return Remainder(left_out, (*self.before, (round, self.value))[-ROUNDS_KEPT:])

    def state(self) -> dict[str, object]:
        """Arrays and numbers, to be written down."""
        nothing = np.empty(0, dtype=np.float32)
        rounds = [{"round": round, "value": nothing if value is None else value} for round, value in self.before]
        return {"value": nothing if self.value is None else self.value, "before": rounds}

    @staticmethod
    def restore(state: Mapping[str, Any]) -> Remainder:
        """The way back."""

        def some(value: object) -> Vector | None:
            array = trees.vector(value)
            return array if array.size else None

        before = tuple((trees.whole_number(one["round"]), some(one["value"])) for one in state["before"])
        return Remainder(some(state["value"]), before)
