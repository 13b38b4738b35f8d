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
from adaquantfl.quantizers.base import whole_levels
from adaquantfl.quantizers.registry import find
from adaquantfl.quantizers.segments import scope_segments

Vector = npt.NDArray[np.float32]
KEY = aq.stream_key(seed=0, round=0, client=0)
FINEST, COARSEST = 65_535.0, 0.05
_CLOSE = 0.99  # a search ends when the error is so near the target, or s is known to a thousandth

_SLIGHT = 1e-3  # an error below which a weight gains nothing that float32 sums could tell


@dataclass(frozen=True)
class Choice:
    """A way to use AdaQuantFL: which elements share a norm, and what else `aq.compress` is given."""

    scope: str | int
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        where = f"buckets of {self.scope}" if isinstance(self.scope, int) else str(self.scope)
        return ", ".join([where, *(f"{value}" for value in self.extra.values())])


# Large levels of a long vector need buckets: s = 65535 of one norm may be too coarse.
LONG = Choice(65_536, {"quantizer": "lattice"})
CHOICES = (
    *(
        Choice(scope, {"quantizer": name})
        for name in ("uniform", "lattice", "centroid")
        for scope in ("whole", "tensor")
    ),
    LONG,
    *(Choice(length, {"quantizer": "uniform", "norm": "linf"}) for length in (4096, 512, 64)),
    # Only against methods that are biased too.
    *(Choice(scope, {"quantizer": "nearest", "norm": "linf"}) for scope in ("whole", "tensor", 4096, 512, 256, 64)),
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


def errors_of(x: Vector, frame: bytes) -> tuple[float, float, float]:
    """The relative squared error of the frame's vector, the same with the best weight, and that weight."""
    total = aq.Accumulator(len(x))
    total.add(frame)
    back = total.result()
    noise, square, energy = _product(back - x, back - x), _product(back, back), _product(x, x)
    if noise < _SLIGHT * energy or square == 0:
        return noise / energy, noise / energy, 1.0
    weight = _product(back, x) / square
    left = np.float32(weight) * back - x  # not as a difference of large sums, in which a small error would drown
    return noise / energy, _product(left, left) / energy, weight


def _product(a: Vector, b: Vector) -> float:
    """The inner product, added up in double."""
    return float(np.sum(a * b, dtype=np.float64))


class Curve:
    """A choice's error on a vector over s. What was looked at once is kept: the next search begins from it."""

    def __init__(self, x: Vector, choice: Choice, segments: npt.NDArray[np.int64] | None) -> None:
        self.x, self.choice, self.segments = x, choice, segments
        self._seen: dict[float, tuple[float, float, float, int]] = {}

    def look(self, s: float, biased: bool, codec: str = "auto") -> Match:
        if s not in self._seen:
            frame = Sender(self.choice, s, "auto", self.segments).compress(self.x)
            self._seen[s] = (*errors_of(self.x, frame), len(frame))
        plain, shrunk, weight, size = self._seen[s]
        sender = Sender(self.choice, s, codec, self.segments, weight if biased else 1.0)
        if codec != "auto":
            size = len(sender.compress(self.x))
        return Match(sender, size, shrunk if biased else plain)

    def matches(self, target: float, biased: bool, limit: float = math.inf, guess: float = 0.0) -> list[Match]:
        """The fewest levels that meet the target, with the smallest code, and the fixed one if it may fit `limit`."""
        kind = find(self.choice.extra["quantizer"])
        if not biased and not kind.traits.unbiased:
            return []
        first = [min(guess * step, FINEST) for step in (0.99, 1.01) if guess > 0]
        s = coarsest(lambda s: self.look(s, biased).error, target, [*self._seen, *first])
        if s is None:
            return []
        small, width = self.look(s, biased), whole_levels(s)[0].bit_length()
        if len(self.x) * (width + 1) > 8 * limit:
            return [small]
        # The fixed code has room for 2^width - 1 of uniform's levels; fewer take as many bytes.
        fixed = self.look(2.0**width - 1 if kind.traits.linear else s, biased, "fixed")
        return [small, fixed if fixed.error <= target else self.look(s, biased, "fixed")]


def coarsest(error: Callable[[float], float], target: float, seen: Sequence[float] = ()) -> float | None:
    """The smallest s with error(s) <= target, nearly; None if there is none. `seen`: where to look first.

    The error falls like s^-1 to s^-2, so the search is along a straight line of log error over log s.

    >>> 100 <= coarsest(lambda s: s**-2, 1e-4) < 101
    True
    >>> coarsest(lambda s: 1.0, 0.5) is None
    True
    """
    known = {s: error(s) for s in (*seen, COARSEST, FINEST)}
    if known[FINEST] > target:
        return None
    if known[COARSEST] <= target:
        return COARSEST
    fine = min(s for s in known if known[s] <= target)
    coarse = max(s for s in known if s < fine)
    for step in range(60):
        if known[fine] >= _CLOSE * target or fine / coarse <= 1.001:
            break
        middle = (
            _between(coarse, fine, known[coarse], known[fine], target) if step % 4 < 3 else math.sqrt(coarse * fine)
        )
        known[middle] = error(middle)
        fine, coarse = (middle, coarse) if known[middle] <= target else (fine, middle)
    return fine


def _between(coarse: float, fine: float, above: float, below: float, target: float) -> float:
    """Where a straight line of logarithms passes a little below the target, kept off the ends."""
    if below <= 0 or below >= above:
        return math.sqrt(coarse * fine)
    share = math.log(above / (0.985 * target)) / math.log(above / below)
    return float(coarse * (fine / coarse) ** min(0.995, max(0.005, share)))


def curves(x: Vector, tensors: Sequence[int], choices: Sequence[Choice] = CHOICES) -> list[Curve]:
    """One for each choice that is not the same as another on this vector."""
    return [
        Curve(x, choice, scope_segments(choice.scope, tensors))
        for choice in choices
        if choice.scope != "tensor" or len(tensors) > 1
    ]


def picks(x: Vector, found: Sequence[Match], limit: int) -> dict[str, Match]:
    """The smallest, and of those that are no larger than the peer's `limit` the fastest."""
    chosen: dict[str, Match] = {}
    if found:
        chosen["small"] = min(found, key=lambda match: match.bytes)
    fitting = [match for match in found if match.bytes <= limit]
    if fitting:
        chosen["fast"] = min(fitting, key=lambda match: Timed(x, match.sender).both())
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

    def both(self) -> float:
        """Seconds to encode and to decode, the lower of two trials."""
        return min(times["encode"] + times["decode"] for times in (self.seconds(), self.seconds()))

    def _add(self) -> None:
        self.total.add(self.frame, self.sender.weight)


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
