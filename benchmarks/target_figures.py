"""The codec's figures: this machine's speed against the targets, in less than half a minute.

Speeds of long vectors are shares of np.copyto of the same vector, or symbols per second. One thread and its CPU time,
which others' work on the machine disturbs least, except where a line says otherwise; the fastest of several runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from adaquantfl.codecs.accumulator import Accumulator
from adaquantfl.codecs.coding import compress, encode
from adaquantfl.quantizers.levels import Levels, level_dtype
from adaquantfl.threads import cores, over_ranges, set_threads
from common import entropy_bytes
from speed import Vector, best, gaussian

LONG, MIDDLE, SHORT = 11_181_642, 1_663_370, (1_000, 10_000, 100_000)  # elements: ResNet-18, the paper's CNN, adapters
ENTROPIES = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)  # bits per element
CODECS = ("fixed", "sparse", "dense")
_BAR = 20  # characters; the target is in the middle


@dataclass(frozen=True)
class Figure:
    """One measured number and its target. least: whether it should be at least that much, and not at most."""

    name: str
    measured: float
    unit: str
    target: float
    least: bool = True

    @property
    def share(self) -> float:
        """How much of the target is reached; 1 and more is met."""
        return self.measured / self.target if self.least else self.target / self.measured

    @property
    def bar(self) -> str:
        """The share as a line, cut at twice the target.

        >>> Figure("", 3.0, "GB/s", 4.0).bar
        '=======   |         '
        >>> Figure("", 60.0, "us", 50.0, least=False).bar
        '========  |         '
        """
        filled = min(_BAR, int(self.share * _BAR / 2))
        line = "=" * filled + " " * (_BAR - filled)
        return line if filled > _BAR // 2 else line[: _BAR // 2] + "|" + line[_BAR // 2 + 1 :]

    def __str__(self) -> str:
        sign = ">=" if self.least else "<="
        met = "met" if self.share >= 1 else ""
        return (
            f"{self.name:44} {self.measured:9.4g} {self.unit:12} {sign} {self.target:8.4g}  {self.bar} {met}".rstrip()
        )


def figures(
    long: int = LONG, middle: int = MIDDLE, short: Sequence[int] = SHORT, entropies: Sequence[float] = ENTROPIES
) -> Iterator[Figure]:
    """Every figure, as soon as it is measured."""
    set_threads(1)
    try:
        yield from _dense(middle, entropies)
        x = gaussian(long)
        yield from _fixed(x)
        yield from _small_frames(middle)
        yield from _short(short)
        yield from _threads(x)
    finally:
        set_threads(None)


def table(rows: Sequence[Figure]) -> str:
    """The end of the list."""
    met = sum(row.share >= 1 for row in rows)
    return f"{met} of {len(rows)} targets are met. A bar ends at twice its target; | is the target."


def levels_of_entropy(bits: float, d: int) -> Levels:
    """Random levels with about this entropy: three of them below 1.5 bits, a Gaussian above.

    >>> levels = levels_of_entropy(4.0, 100_000)
    >>> round(8 * entropy_bytes(levels) / 100_000, 1)
    4.0
    """
    rng = np.random.default_rng(0)
    if bits < 1.5:
        some = next(p for p in np.arange(0.001, 0.67, 0.001) if _ternary_entropy(p) >= bits)
        values = (rng.random(d) < some) * rng.choice([-1, 1], d)
    else:
        values = np.rint(2**bits / np.sqrt(2 * np.pi * np.e) * rng.standard_normal(d))
    s = int(np.abs(values).max())
    return Levels(values.astype(level_dtype(s)), np.float32(1), s)


def _ternary_entropy(p: float) -> float:
    return float(-p * np.log2(p / 2) - (1 - p) * np.log2(1 - p))


def _dense(d: int, entropies: Sequence[float]) -> Iterator[Figure]:
    for bits in entropies:
        levels = levels_of_entropy(bits, d)
        entropy = entropy_bytes(levels)
        frame = encode(levels, "dense")
        name = f"dense, {8 * entropy / d:.1f} bits per element"
        seconds = _seconds(partial(encode, levels, "dense"), d)
        yield Figure(f"{name}: encode", d / seconds / 1e9, "G symbols/s", 0.6)
        yield Figure(f"{name}: decode + add", d / _add_seconds(frame, d) / 1e9, "G symbols/s", 1.2)
        yield Figure(f"{name}: size", len(frame) / entropy, "of entropy", 1.01, least=False)


def _fixed(x: Vector) -> Iterator[Figure]:
    target = np.empty_like(x)
    for s in (1, 3, 15, 255):
        compressing = partial(compress, x, s, 1, "fixed")
        adding = _adding(compressing(), len(x))
        copy, sending, receiving = _in_turns(partial(np.copyto, target, x), compressing, adding)
        yield Figure(f"fixed, s = {s}: compress", copy / sending, "of copy", 0.5)
        yield Figure(f"fixed, s = {s}: decode + add", copy / receiving, "of copy", 1.0)


def _small_frames(d: int) -> Iterator[Figure]:
    frame = compress(gaussian(d), 1, 1, "sparse")
    yield Figure(f"sparse, s = 1: frames of d = {d:,} added", 1 / _add_seconds(frame, d), "frames/s", 15_000)


def _short(dimensions: Sequence[int]) -> Iterator[Figure]:
    for d in dimensions:
        for codec, s, nanoseconds in (("fixed", 15, 0.7), ("sparse", 1, 1.5), ("dense", 255, 2.0), ("auto", 15, 2.0)):
            seconds, frame = _compress_seconds(gaussian(d), s, codec)
            name, slope = f"{codec}, s = {s}, d = {d:,}", nanoseconds * d / 1000
            yield Figure(f"{name}: compress", 1e6 * seconds, "us", 15 + slope, least=False)
            yield Figure(f"{name}: decode + add", 1e6 * _add_seconds(frame, d), "us", 12 + slope, least=False)


def _threads(x: Vector) -> Iterator[Figure]:
    if cores() < 2:
        return
    target = np.empty_like(x)

    def copy(first: int, last: int) -> None:
        np.copyto(target[first:last], x[first:last])

    works: dict[str, Callable[[], object]] = {
        "copy, 2 threads": partial(over_ranges, copy, len(x), 1)
    }  # memory's limit
    for codec, s in zip(CODECS, (3, 3, 4000), strict=True):
        works[f"{codec}, s = {s}, 2 threads: compress"] = partial(compress, x, s, 1, codec)
        works[f"{codec}, s = {s}, 2 threads: decode + add"] = _adding(compress(x, s, 1, codec), len(x))
    for name, work in works.items():
        yield Figure(name, _gain(work), "times as fast", 1.8)


def _gain(work: Callable[[], object], repeat: int = 12) -> float:
    """How many times as fast two threads are, on the wall's clock. One and two take turns, so that both see the same
    machine."""
    least = [math.inf, math.inf]
    for _ in range(repeat):
        for place in (0, 1):
            set_threads(place + 1)
            began = time.perf_counter()
            work()
            least[place] = min(least[place], time.perf_counter() - began)
    set_threads(1)
    return least[0] / least[1]


def _in_turns(*works: Callable[[], object], repeat: int = 10) -> list[float]:
    """The fastest run of each. They take turns, so that all of them see the same machine."""
    least = [math.inf] * len(works)
    for _ in range(repeat):
        for place, work in enumerate(works):
            least[place] = min(least[place], best(work, 1, time.thread_time))
    return least


def _compress_seconds(x: Vector, s: int, codec: str) -> tuple[float, bytes]:
    work = partial(compress, x, s, 1, codec)
    return _seconds(work, len(x)), work()


def _add_seconds(frame: bytes, d: int) -> float:
    return _seconds(_adding(frame, d), d)


def _adding(frame: bytes, d: int) -> Callable[[], None]:
    total = Accumulator(d)

    def add() -> None:
        total.add(frame, 0.5)

    return add


def _seconds(work: Callable[[], object], d: int) -> float:
    """Short work is repeated more often."""
    return best(work, 15 if d > 2**20 else 200, time.thread_time)
