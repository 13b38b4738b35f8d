"""Many frames to one weighted sum (eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import core
from ..core import Scratch
from ..errors import FrameError
from ..open_registry import OUTSIDE_TAGS
from ..quantizers.base import L2, LARGEST_FLOAT
from ..quantizers.segments import Segments
from ..quantizers.vectors import energy
from . import raw
from .coding import levels_of
from .frame import FLOAT32, TILE, Bytes, Frame, read_frame
from .registry import BuiltIn, by_tag

_TAGS = slice(5, 7)  # where a frame has those of its quantizer and its codec
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class Accumulator:
    """The server's sum of p_i Q(update_i) (eq. 3): frames go in, one float32 vector comes out.

    A frame is checked and added in one pass. Every element adds up in the order of the calls, whatever the number of
    threads. Memory is O(dimension) for any number of frames.

    Floating-point sums depend on the order: add frames in the order of their clients, from one thread at a time.

    The memory for decoding is kept from frame to frame.

    >>> import adaquantfl as aq
    >>> total = Accumulator(2)
    >>> total.add(aq.compress(np.array([3.0, -4.0], dtype=np.float32), s=5, key=0), weight=0.5)
    >>> total.result()
    array([ 1.5, -2. ], dtype=float32)
    """

    def __init__(self, dimension: int) -> None:
        if dimension < 1:
            raise FrameError(f"An accumulator of dimension {dimension} holds nothing; it must be at least 1.")
        self.dimension = dimension
        self.frames = 0
        self._total = np.zeros(dimension, dtype=np.float32)
        self._bound = 0.0  # what no element of the sum can exceed in size
        self._scratch = Scratch()

    def add(self, frame: Bytes | Checked, weight: float = 1.0) -> None:
        """Add weight x the frame's vector. A refused frame (FrameError) leaves the sum as it was.

        A frame that `check_frame` has seen has its weight already.

        >>> import adaquantfl as aq
        >>> total, frames = Accumulator(2), [aq.compress(np.array([3.0, -4.0]), s=5, key=client) for client in range(2)]
        >>> total.add(frames[0], weight=0.25)
        >>> total.add(frames[1], weight=0.75)
        >>> total.result(), total.frames
        (array([ 3., -4.], dtype=float32), 2)
        """
        if isinstance(frame, Checked):
            if frame.frame.header.dimension != self.dimension:
                raise FrameError(
                    f"The frame has dimension {frame.frame.header.dimension:,}, expected {self.dimension:,}."
                )
            self._add_checked(frame)
        else:
            check_weight(weight)
            data = frame if isinstance(frame, bytes) else bytes(frame)
            outside = any(tag in OUTSIDE_TAGS for tag in data[_TAGS])
            bound = None if outside else core.add(data, self._total, float(weight), self._bound, None, self._scratch)
            if bound is None:
                self._add_checked(check_frame(data, weight, self.dimension))
            else:
                self._bound = bound
        self.frames += 1

    def _add_checked(self, ready: Checked) -> None:
        if self._bound + ready.bound > LARGEST_FLOAT:
            raise FrameError(f"The sum could reach {self._bound + ready.bound:g}, which is beyond float32.")
        ready.add_to(self._total, self._scratch)
        self._bound += ready.bound

    def result(self) -> npt.NDArray[np.float32]:
        """Return a copy of the sum so far.

        >>> Accumulator(3).result()
        array([0., 0., 0.], dtype=float32)
        """
        return self._total.copy()

    def take(self) -> npt.NDArray[np.float32]:
        """Return the sum itself, without a copy, if you do not use this object afterwards.

        >>> Accumulator(3).take()
        array([0., 0., 0.], dtype=float32)
        """
        total, self._total = self._total, np.empty(0, dtype=np.float32)
        return total


@dataclass(frozen=True)
class Checked:
    """A frame that is right from end to end, with its weight. It is kept as its bytes, and decoded when it is added."""

    frame: Frame
    largest: float  # what no element of the frame can exceed in size
    weight: float

    @staticmethod
    def of(frame: Frame, weight: float) -> Checked:
        """Check a frame's body. FrameError where it is damaged, or its values times the weight could leave float32."""
        check_weight(weight)
        if frame.header.quantizer == FLOAT32:
            raw.check(frame)
            largest = float(np.abs(raw.values(frame)).max())
        else:
            largest, codec = frame.header.bound, by_tag(frame)
            if isinstance(codec, BuiltIn):
                core.decode(frame.data, frame.facts, None)
            else:
                codec.read(frame)
        return Checked(frame, largest, weight).weighted(weight)

    def weighted(self, weight: float) -> Checked:
        """The same frame with another weight; FrameError where an element could then leave float32."""
        if abs(weight) * self.largest > LARGEST_FLOAT:
            raise FrameError(f"Values up to {self.largest:g} with weight {weight:g} are beyond float32.")
        return replace(self, weight=weight)

    @property
    def bound(self) -> float:
        """What no element of the weighted vector can exceed in size."""
        return abs(self.weight) * self.largest

    @property
    def s(self) -> int | None:
        """The number of levels; None for float32 values."""
        return None if self.frame.header.quantizer == FLOAT32 else self.frame.header.s

    @property
    def norm(self) -> float:
        """The l2 norm of the vector that was quantized.

        It is known where the scales are the norms of its segments (times the stretch of the levels). Otherwise this is
        the norm of the vector that the frame decodes to, the quantizer's noise included.
        """
        header = self.frame.header
        parts = header.scales if self.s is not None and header.norm == L2 else self.vector()
        return float(np.linalg.norm(parts.astype(np.float64)))

    @property
    def decoded_norm(self) -> float:
        """The l2 norm of what the frame decodes to, whatever its header says; without its weight."""
        header = self.frame.header
        if self.s is not None and not header.kind.traits.linear:
            pieces: Iterable[Any] = (floats for _, floats in header.kind.pieces(levels_of(self.frame)))
        else:
            found = np.zeros(header.dimension, dtype=np.float32)
            self.weighted(1.0).add_to(found)
            pieces = (found,)
        return math.sqrt(sum(map(energy, pieces)))

    def vector(self) -> npt.NDArray[np.float32]:
        """What the frame stands for, without its weight."""
        return raw.values(self.frame) if self.s is None else levels_of(self.frame).dequantize()

    def add_to(self, total: npt.NDArray[np.float32], scratch: Scratch | None = None) -> None:
        """total += weight x the frame's vector."""
        header, data = self.frame.header, self.frame.data
        if header.codec not in OUTSIDE_TAGS and header.quantizer not in OUTSIDE_TAGS:
            told = None if self.frame.known is None else self.frame.known.told
            whole = data if isinstance(data, bytes) else bytes(data)
            if core.add(whole, total, float(self.weight), 0.0, told, scratch) is not None:
                return
        if self.s is not None and not header.kind.traits.linear:
            for here, floats in header.kind.pieces(levels_of(self.frame)):
                total[here] += np.multiply(floats, np.float32(self.weight), out=floats)
            return
        values, steps = self._parts()
        for start in range(0, len(total), TILE):
            total[start : start + TILE] += self._tile(values, steps, start, min(start + TILE, len(total)))

    def _parts(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Levels and what they are multiplied by in each segment; or floats and the weight."""
        header = self.frame.header
        if self.s is None or not header.kind.traits.linear:
            return self.vector(), np.array([self.weight], dtype=np.float32)
        parts = header.s if header.kind.traits.divides else 1
        return levels_of(self.frame).values, (self.weight * header.scales.astype(np.float64) / parts).astype(np.float32)

    def _tile(
        self, values: npt.NDArray[Any], steps: npt.NDArray[np.float32], start: int, stop: int
    ) -> npt.NDArray[np.float32]:
        here: npt.NDArray[np.float32] = values[start:stop].astype(np.float32)
        if len(steps) == 1:
            return np.asarray(here * steps[0], dtype=np.float32)
        offsets = Segments.of(self.frame.header.segments, len(values)).offsets
        bounds: npt.NDArray[np.int64] = np.clip(offsets, start, stop)
        return here * np.repeat(steps, np.diff(bounds))


def tiles(frames: Sequence[Checked]) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Several frames side by side: where a tile is, and its values times the weights, a row for each frame.

    All are decoded first, to levels where an element is a level times a step.
    """
    if not frames:
        return
    dimension, decoded = frames[0].frame.header.dimension, [frame._parts() for frame in frames]
    for start in range(0, dimension, TILE):
        stop = min(start + TILE, dimension)
        rows = [frame._tile(*parts, start, stop) for frame, parts in zip(frames, decoded, strict=True)]
        yield slice(start, stop), np.stack(rows)


def check_weight(weight: float) -> None:
    """Refuse what is not a finite float32."""
    if not isinstance(weight, int | float | np.number) or not abs(weight) <= _FLOAT32_MAX:
        raise FrameError(f"The weight {weight!r} is not a finite float32.")


def check_frame(frame: Bytes, weight: float, dimension: int) -> Checked:
    """A frame looked at from end to end, ready to be added: FrameError on anything malformed."""
    # A buffer that the caller may use again is copied: the frame waits.
    return Checked.of(read_frame(frame if isinstance(frame, bytes) else bytes(frame), dimension), weight)
