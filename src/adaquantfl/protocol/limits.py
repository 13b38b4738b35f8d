"""Limits on what one client says: its mistake, or malice, must not be everybody's model.

Next to the bound of an update's norm, each array that is not quantized has a bound of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Self

import numpy as np

from ..errors import ConfigError
from .arrays import EXACT, OTHER, QUANTIZED, Layout, Model
from .bfloat16 import widened

REFUSE, CLIP = "refuse", "clip"  # what is done with a norm above the limit
LOSS_FACTOR = 10.0  # times the round's median that the loss of a client counts for, at most
ARRAY_FACTOR = 100.0  # times the round's median: clients that train 100 times as long as others are still honest
Changes = Mapping[str, float]  # the l2 norm of the change of each array that is not quantized, by name


@dataclass(frozen=True)
class Limit:
    """A bound: absolute, or a multiple of the median of a round; both are infinite where there is none."""

    absolute: float = math.inf
    times_median: float = math.inf

    @classmethod
    def of(cls, name: str, value: float | str) -> Self:
        """From a setting: a number, "10x", or 0 for no limit."""
        if isinstance(value, str):
            factor = re.fullmatch(r"(\d+(?:\.\d+)?)x", value)
            if factor is None or float(factor[1]) < 1:
                raise ConfigError(
                    f"{name} = {value!r}: use a number, or a multiple of the round's median such as '10x'."
                )
            return cls(times_median=float(factor[1]))
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ConfigError(f"{name} = {value}: it must be above 0, or 0 for no limit.")
        return cls(absolute=float(value) or math.inf)

    @property
    def needs_all(self) -> bool:
        """Whether all that is said in the round must be known before anything is judged."""
        return self.times_median < math.inf

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self.needs_all or self.absolute < math.inf

    def bound(self, median: float) -> float:
        """The most that counts in a round with this median."""
        return self.times_median * median if self.needs_all else self.absolute


@dataclass(frozen=True)
class NormLimit(Limit):
    """A bound on an update's l2 norm. clip: an update above it is scaled down to it; otherwise it is refused.

    The norm is that of what a frame decodes to, because that is what moves the model. It is larger than the norm of the
    client's own update by the quantizer's noise: with few levels by up to sqrt(d) / s.

    >>> NormLimit.of("max_update_norm", "10x").refused({0: 1.0, 1: 2.0, 2: 50.0}, median=2.0)
    {2: 'its update has norm 50, above 10 times the median of the round, 2.'}
    >>> NormLimit(times_median=10, clip=True).factors({0: 1.0, 1: 2.0, 2: 50.0}, median=2.0)
    {2: 0.4}
    """

    clip: bool = False

    def refused(self, norms: Mapping[int, float], median: float) -> dict[int, str]:
        """Who is refused, and why. median: of the round. A norm that is not a number is above every limit."""
        reasons, most = {}, math.inf if self.clip else self.bound(median)
        for who, norm in norms.items():
            if math.isnan(norm):
                reasons[who] = "its update has norm NaN: it is not finite."
            elif norm > most:
                times = f"{self.times_median:g} times the median of the round, {median:g}."
                what = times if self.needs_all else f"max_update_norm = {most:g}."
                reasons[who] = f"its update has norm {norm:g}, above {what}"
        return reasons

    def factors(self, norms: Mapping[int, float], median: float) -> dict[int, float]:
        """Who is scaled down, and what its update is multiplied by."""
        bound = self.bound(median) if self.clip else math.inf
        return {who: bound / norm for who, norm in norms.items() if norm > bound}


@dataclass(frozen=True)
class ExamplesLimit(Limit):
    """A bound on the number of examples that a client's weight is made from.

    A client that tells a larger number takes part with the bound instead. The median is the lower one of the two in the
    middle. So it is an honest client's where half of the clients are honest.

    >>> ExamplesLimit(times_median=10).capped({0: 600, 1: 550, 2: 2**32 - 1})
    {0: 600, 1: 550, 2: 6000}
    """

    def most(self, told: Collection[float]) -> float:
        """The most that counts in a round. told: the numbers of its clients, all above 0."""
        return self.bound(median_low(told)) if told else math.inf

    def capped(self, told: Mapping[int, int]) -> dict[int, int]:
        """What counts instead of what each client told."""
        most = self.most(told.values())
        return {who: max(1, math.floor(most)) if number > most else number for who, number in told.items()}


def bounded(losses: Mapping[int, float], weights: Mapping[int, float], signed: bool = False) -> dict[int, float]:
    """Return what rules see of what each client said: at most 10 times the weighted median, at least a tenth of it.

    What is NaN counts as the upper bound. Nothing changes where the median itself is not finite, because most clients
    then say that the model is ruined.

    Args:
        losses: of each client, as it says.
        weights: of at least these clients.
        signed: whether losses below 0 make sense. The median is then that of their sizes, and the lower bound is the
            upper one with a minus. Otherwise a loss of 0 or less says nothing about the median.

    >>> bounded({0: 2.1, 1: 2.3, 2: 1e300}, {0: 0.3, 1: 0.3, 2: 0.4})
    {0: 2.1, 1: 2.3, 2: 23.0}
    """
    sizes = {who: abs(x) if x == x else math.inf for who, x in losses.items() if signed or not x <= 0}
    middle = _weighted_median(sizes, weights)
    if not math.isfinite(middle):
        return dict(losses)
    most = LOSS_FACTOR * middle
    least = -most if signed else middle / LOSS_FACTOR
    return {who: x if least <= x <= most else least if x < least else most for who, x in losses.items()}


def _weighted_median(figures: Mapping[int, float], weights: Mapping[int, float]) -> float:
    """The lowest figure such that those up to it have half of the weight; NaN where there is none."""
    half, below = sum(weights[who] for who in figures) / 2, 0.0
    for who in sorted(figures, key=lambda one: (figures[one], one)):
        below += weights[who]
        if below >= half:
            return figures[who]
    return math.nan


def changes_of(layout: Layout, old: Model, new: Model) -> dict[str, float]:
    """How far each array that is not quantized moved; infinite where that is beyond float64."""
    pairs = zip(layout.pieces(old), layout.pieces(new), strict=True)
    with np.errstate(over="ignore"):
        return {
            entry.name: float(np.linalg.norm(widened(after).astype(np.float64) - widened(before).astype(np.float64)))
            for (entry, before), (_, after) in pairs
            if entry.kind != QUANTIZED and entry.size
        }


def measured(layout: Layout, moved: float, old: Model, new: Model) -> tuple[float, Changes]:
    """The norm of an update, and its changes. moved: the norm of what is quantized.

    Float32 buffers and floats that travel as they are, such as float64, are a part of the norm.
    """
    changes = changes_of(layout, old, new)
    floats = [e.name for e in layout.entries if e.kind == EXACT or (e.kind == OTHER and "float" in e.dtype)]
    return math.hypot(moved, *(changes[name] for name in floats if name in changes)), changes


def far_off(changes: Mapping[int, Changes]) -> dict[int, str]:
    """Who moved an array by more than 100 times the round's median, and the reason."""
    reasons = {}
    for name in next(iter(changes.values()), {}):
        middle = median_low(moved[name] for moved in changes.values())
        for who, moved in changes.items():
            if not moved[name] <= ARRAY_FACTOR * middle:
                times = f"{ARRAY_FACTOR:g} times the median of the round, {middle:g}."
                reasons[who] = f"its update has norm {moved[name]:g} in the array {name!r}, above {times}"
    return reasons
