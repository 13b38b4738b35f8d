"""The uplink: an update becomes a frame by the round's quantizer and codec (eq. 4); frames are checked on arrival."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    whole_levels,
)
from ..quantizers.levels import Levels, quantize, try_out
from ..quantizers.segments import scope_segments
from ..rules import Plan
from ..theory import MAX_LEVELS
from .arrays import Layout, Vector
from .messages import ERROR, LEVELS, RESOLUTION, Order

_TARGETS: Mapping[str, Callable[[float], Target]] = {LEVELS: Count, ERROR: MaxError, RESOLUTION: Resolution}
MOST_UPDATE_NORM = 2.0**96  # that a client sends
MOST_VALUE = 2.0**112  # that a frame may decode to: sums of any number of such updates are finite


@dataclass(frozen=True)
class Uplink:
    """The user's settings of the uplink; what is not set is the plan's.

    Attributes:
        quantizer: as `aq.compress` takes it; None leaves it to the rule.
        norm: "l2" or "linf"; "" is the quantizer's usual one.
        scope: a norm for each "tensor", for the "whole" update, or for buckets of a number of elements. "balanced" is
            "tensor" with more levels for small tensors.
        codec: as `aq.compress` takes it.
        own_levels: s of a quantizer whose levels no rule chooses.
        feedback: clients add what they left out to their next update; None leaves it to the rule.
    """

    quantizer: Quantizer | None = None
    norm: str = ""
    scope: str | int = "tensor"
    codec: str = "auto"
    own_levels: int = 1
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
            return (self.own_levels if kind.traits.own_levels else 1), LEVELS
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
    """Refuse an order whose quantizer or codec this client does not have: FrameError."""
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


@dataclass(frozen=True)
class Sent:
    """A frame, and the levels in it where they were needed."""

    frame: bytes
    levels: Levels | None


def send(update: Vector, order: Order, layout: Layout, keep_levels: bool, key: int) -> Sent:
    """An update as a frame that leaves out what the order says.

    keep_levels: whether the caller needs what the frame decodes to. key: of the client's random stream.
    """
    if order.s is None:
        return Sent(encode_float32(update), None)
    (quantizer, norm), lengths = quantizers.by_tag(order.quantizer), layout.lengths
    segments = order.segments(lengths)
    target = _TARGETS[order.target](order.s)
    s, stretch = levels_for(quantizer, order, target, lengths, update, key, norm)
    assert s is not None
    if not keep_levels:
        frame = compress(update, s, key, order.codec, segments, stretch, quantizer, norm or None, order.known(lengths))
        return Sent(frame, None)
    levels = quantize(update, s, key, segments, stretch, quantizer, norm or None)
    return Sent(encode(levels, order.codec, order.known(lengths)), levels)


def counted_levels(s: float) -> int:
    """The levels that the paper's formula counts for a rule's s."""
    return whole_levels(s)[0]
