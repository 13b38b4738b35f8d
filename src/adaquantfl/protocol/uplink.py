"""The uplink: an update becomes a frame by the round's quantizer and codec (eq. 4); frames are checked on arrival."""

from __future__ import annotations

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
from ..quantizers.base import Quantizer, whole_levels
from ..quantizers.choice import levels_for_error
from ..quantizers.levels import Levels, quantize
from ..quantizers.segments import scope_segments
from ..rules import RuleState
from ..rules import registry as rules
from ..rules.auto import Auto
from .arrays import Layout, Vector
from .messages import Order

MOST_UPDATE_NORM = 2.0**96  # that a client sends
MOST_VALUE = 2.0**112  # that a frame may decode to: sums of any number of such updates are finite


@dataclass(frozen=True)
class Uplink:
    """Settings of the uplink.

    quantizer, norm, codec: as `aq.compress` takes them. scope: a norm for each "tensor", for the "whole" update, or for
    buckets of a number of elements. "balanced" is "tensor" with more levels for small tensors. own_levels: s of a
    quantizer whose levels no rule chooses. feedback: clients add what they left out to their next update.
    """

    quantizer: Quantizer
    norm: str
    scope: str | int = "tensor"
    codec: str = "auto"
    own_levels: int = 1
    feedback: bool = False

    @staticmethod
    def of(
        quantizer: str | Quantizer = "uniform",
        norm: str = "",
        scope: str | int = "tensor",
        codec: str = "auto",
        own_levels: int = 1,
        feedback: bool | None = None,
    ) -> Uplink:
        """Settings from names, checked. feedback: None is what the quantizer is meant for."""
        kind = quantizers.find(quantizer)
        scope_segments(scope, [1])
        codecs.find(codec)
        if scope == "balanced" and not kind.takes_balanced:
            raise ConfigError(f"scope = 'balanced' does not go with quantizer = {kind.name!r}: use 'tensor'.")
        return Uplink(
            kind, kind.norm(norm or None), scope, codec, own_levels, kind.feedback if feedback is None else feedback
        )

    @property
    def tag(self) -> int:
        """Of the quantizer with this norm, in frames and orders."""
        return self.quantizer.tags[self.norm]

    def balanced(self, by_rule: bool) -> bool:
        """Whether small tensors get more levels: because the scope says so, or the rule does and the quantizer can."""
        return self.scope == "balanced" or (by_rule and self.scope == "tensor" and self.quantizer.takes_balanced)

    def in_round(self, rule: RuleState) -> Uplink:
        """The uplink of a round: where the rule says so, what is left out of an update is sent in later rounds."""
        if rule.s is None or not rule.later:
            return self
        kind = quantizers.find(Auto.usual_quantizer)
        return replace(self, quantizer=kind, norm=kind.norm(None), feedback=True)

    def number(self, s: float | None) -> float | None:
        """What an order says instead of the rule's s."""
        if s is None or self.quantizer.follows_rule:
            return s
        return self.own_levels if self.quantizer.own_levels else 1

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


def _check_header(header: Header, order: Order, lengths: tuple[int, ...]) -> None:
    """Before the body is looked at: it may cost much."""
    if order.s is None:
        if header.quantizer != FLOAT32:
            raise FrameError("It has levels, but the round's plan says float32.")
        return
    quantizer, norm = quantizers.by_tag(order.quantizer)
    if header.quantizer != order.quantizer:
        raise FrameError(f"It was not made by {quantizer.name} with norm {norm!r}, as the plan says.")
    if not order.choice:
        least, most = _levels(quantizer, order, order.s, lengths)
        if not least <= header.s <= most:
            asked = f"s = {least}" if least == most else f"s from {least} to {most}"
            raise FrameError(f"It has s = {header.s}, but the round's plan says {asked}.")
    if not quantizer.can_send(header.segments, order.segments(lengths), header.dimension):
        raise FrameError("Its segments are not those of the round's plan.")


def _levels(quantizer: Quantizer, order: Order, planned: float, lengths: tuple[int, ...]) -> tuple[int, int]:
    """The least and the most s that a frame of the round can have; balanced levels depend on the update."""
    if quantizer.feedback:  # balanced or not, s is the same
        order = replace(order, balanced=False)
    s, _ = levels_for(quantizer, order, planned, lengths, None)
    return (s, s) if s is not None else balanced_range(planned, max(lengths), quantizer.most)


def levels_for(
    quantizer: Quantizer, order: Order, s: float, lengths: tuple[int, ...], update: Vector | None
) -> tuple[int | None, Any]:
    """A number of levels, whole or not, as `compress` takes it: s and stretch. None where the update decides s."""
    segments = order.segments(lengths)
    if order.balanced and quantizer.balanced_by_update and update is None:
        return None, 1.0
    runs = np.array([sum(lengths)]) if segments is None else segments
    return quantizer.levels_for(s, runs, update, order.balanced and segments is not None)


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

    def coarsest(error: float) -> float:
        balanced = order.balanced and segments is not None
        return levels_for_error(quantizer, update, error, key, segments, norm, balanced)

    number = rules.find(order.choice).choose(order.s, update, coarsest) if order.choice else order.s
    s, stretch = levels_for(quantizer, order, number, lengths, update)
    assert s is not None
    if not keep_levels:
        frame = compress(update, s, key, order.codec, segments, stretch, quantizer, norm or None, order.known(lengths))
        return Sent(frame, None)
    levels = quantize(update, s, key, segments, stretch, quantizer, norm or None)
    return Sent(encode(levels, order.codec, order.known(lengths)), levels)


def counted_levels(s: float) -> int:
    """The levels that the paper's formula counts for a rule's s."""
    return whole_levels(s)[0]
