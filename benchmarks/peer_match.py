"""AdaQuantFL at a peer's error: the coarsest levels whose error is not above it, and their bytes, for each choice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import adaquantfl as aq
from adaquantfl.quantizers.segments import scope_segments
from adaquantfl.quantizers.uniform import whole_levels

Vector = npt.NDArray[np.float32]
KEY = aq.stream_key(seed=0, round=0, client=0)
FINEST, COARSEST = 65_535.0, 0.05
_CLOSE = 1.005  # a search ends when s is known so exactly


@dataclass(frozen=True)
class Choice:
    """A way to use AdaQuantFL: which elements share a norm, and what else `aq.compress` is given."""

    scope: str | int
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        where = f"buckets of {self.scope}" if isinstance(self.scope, int) else str(self.scope)
        return ", ".join([where, *(f"{value}" for value in self.extra.values())])


# A new quantizer is one more line: Choice("whole", {"quantizer": "dithered"}).
CHOICES = (
    Choice("whole"),
    Choice("tensor"),
    Choice(65_536),
    Choice(4096),
    Choice(512),
    Choice(128),
    Choice(64),
)


@dataclass(frozen=True)
class Sender:
    """`aq.compress` with everything but the vector settled, and the weight that its receiver gives the frame."""

    choice: Choice
    s: float
    codec: str
    segments: npt.NDArray[np.int64] | None
    weight: float = 1.0

    def compress(self, x: Vector) -> bytes:
        s, stretch = whole_levels(self.s)
        return aq.compress(x, s, KEY, self.codec, self.segments, stretch, **self.choice.extra)

    def to_dict(self) -> dict[str, Any]:
        return {"choice": self.choice.title, "s": self.s, "codec": self.codec, "weight": self.weight}


@dataclass(frozen=True)
class Match:
    """What AdaQuantFL sends where a peer sends `its` bytes."""

    sender: Sender
    bytes: int
    error: float

    def to_dict(self) -> dict[str, Any]:
        return {**self.sender.to_dict(), "bytes": self.bytes, "error": self.error}


def error_of(x: Vector, frame: bytes, shrink: bool) -> tuple[float, float]:
    """The relative squared error of the frame's vector, and the weight it is taken with: 1, or the best one."""
    total = aq.Accumulator(len(x))
    total.add(frame)
    back, wide = total.result().astype(np.float64), x.astype(np.float64)
    square, mixed, energy = back @ back, back @ wide, wide @ wide
    weight = float(mixed / square) if shrink and square > 0 else 1.0
    return float((energy - 2 * weight * mixed + weight**2 * square) / energy), weight


def coarsest(error: Callable[[float], float], target: float) -> float | None:
    """The smallest s with error(s) <= target, to half a percent; None if there is none.

    The error falls like s^-1 to s^-2, so the search is for a straight line of log error over log s.

    >>> round(coarsest(lambda s: s**-2, 1e-4))
    100
    >>> coarsest(lambda s: 1.0, 0.5) is None
    True
    """
    fine, coarse = FINEST, COARSEST
    at_fine = error(fine)
    if at_fine > target:
        return None
    at_coarse = error(coarse)
    if at_coarse <= target:
        return coarse
    for step in range(60):
        if fine / coarse <= _CLOSE:
            break
        share = _share(at_coarse, at_fine, target) if step % 3 else 0.5  # halving now and then: it always ends
        middle = coarse * (fine / coarse) ** share
        found = error(middle)
        if found <= target:
            fine, at_fine = middle, found
        else:
            coarse, at_coarse = middle, found
    return fine


def _share(above: float, below: float, target: float) -> float:
    """How far along a straight line of logarithms from `above` to `below` the target lies, kept off the ends."""
    if below <= 0 or below >= above:
        return 0.5
    return min(0.999, max(0.001, math.log(above / target) / math.log(above / below) + 0.002))


def matches(
    x: Vector, tensors: Sequence[int], target: float, biased: bool, choices: Sequence[Choice] = CHOICES
) -> list[Match]:
    """For each choice, the fewest levels that meet the target, with the smallest code and with the fixed one.

    biased: the peer's mean is not the vector either, so the frame may be scaled down by its receiver too.
    """
    found: list[Match] = []
    for choice in choices:
        if choice.scope == "tensor" and len(tensors) == 1:
            continue  # the same as "whole"
        found += _matches(x, choice, scope_segments(choice.scope, tensors), target, biased)
    return found


def _matches(
    x: Vector, choice: Choice, segments: npt.NDArray[np.int64] | None, target: float, biased: bool
) -> list[Match]:
    def look(s: float, codec: str) -> Match:
        sender = Sender(choice, s, codec, segments)
        frame = sender.compress(x)
        error, weight = error_of(x, frame, biased)
        return Match(Sender(choice, s, codec, segments, weight), len(frame), error)

    s = coarsest(lambda s: look(s, "auto").error, target)
    return [] if s is None else [look(s, "auto"), look(s, "fixed")]


def picks(found: Sequence[Match], limit: int) -> dict[str, Match]:
    """The smallest, and the smallest with the fixed code if that is no larger than the peer's `limit`."""
    chosen: dict[str, Match] = {}
    small = [match for match in found if match.sender.codec == "auto"]
    fast = [match for match in found if match.sender.codec == "fixed" and match.bytes <= limit]
    if small:
        chosen["small"] = min(small, key=lambda match: match.bytes)
    if fast:
        chosen["fast"] = min(fast, key=lambda match: match.bytes)
    return chosen


class Timed:
    """CPU seconds of one compression, and of one decoding into a sum."""

    def __init__(self, x: Vector, sender: Sender) -> None:
        self.x, self.sender = x, sender
        self.frame, self.total, self.target = sender.compress(x), aq.Accumulator(len(x)), np.zeros_like(x)
        self.seconds()

    def seconds(self) -> dict[str, float]:
        return {
            "copy": cpu(lambda: np.copyto(self.target, self.x)),
            "encode": cpu(lambda: self.sender.compress(self.x)),
            "decode": cpu(self._add),
        }

    def _add(self) -> None:
        self.total.add(self.frame, self.sender.weight)
        self.total.flush()


class TimedLevels:
    """CPU seconds of coding levels that are there, and of decoding them: what a lossless coder does."""

    def __init__(self, levels: aq.Levels) -> None:
        self.levels, self.frame = levels, aq.encode(levels)
        self.target = np.zeros_like(levels.values)
        self.seconds()

    def seconds(self) -> dict[str, float]:
        return {
            "copy": cpu(lambda: np.copyto(self.target, self.levels.values)),
            "encode": cpu(lambda: aq.encode(self.levels)),
            "decode": cpu(lambda: aq.decode(self.frame)),
        }


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of all threads: on a shared machine the clock also counts what others do."""
    began = time.process_time()
    work()
    return time.process_time() - began
