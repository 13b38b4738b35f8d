"""Many frames to one weighted sum (eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..memory import Block, Memory
from ..quantizers.base import L2, LARGEST_FLOAT
from ..quantizers.segments import Segments
from ..threads import WORTH_A_THREAD, over_ranges
from . import raw
from .coding import levels_of, opened
from .frame import FLOAT32, TILE, Bytes, Frame, Header, read_frame
from .registry import Body

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_SHORT = 2048  # elements: their arrays are small
_TILES_TOGETHER = 8  # 2 MB of the sum stay in the cache while every waiting frame is added to them


class Accumulator:
    """The server's sum of p_i Q(update_i) (eq. 3): frames go in, one float32 vector comes out.

    A frame is checked when it is added. Several frames wait, and are decoded and added up together, tile by tile. So
    the sum is read and written once for all of them. Every element adds up in the order of the calls, whatever the
    number of threads. Memory is O(dimension) for any number of frames.

    Floating-point sums depend on the order: add frames in the order of their clients.

    The memory for decoding is kept. With `reset` instead of a new object for each round, and `result(out=...)`,
    nothing large is allocated from the second round on.

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
        self._waiting: list[Checked] = []
        self._waiting_bytes = 0
        self._bound = 0.0  # what no element of the sum can exceed in size
        self._memory = Memory()
        self._taken: list[Block] = []  # by frames that have not been added yet

    def reset(self) -> None:
        """Begin again at zero, in the same memory. Frames that wait are forgotten.

        >>> import adaquantfl as aq
        >>> total = Accumulator(2)
        >>> total.add(aq.compress(np.array([3.0, -4.0]), s=5, key=0))
        >>> total.reset()
        >>> total.result(), total.frames
        (array([0., 0.], dtype=float32), 0)
        """
        self.frames = self._waiting_bytes = 0
        self._bound = 0.0
        self._waiting = []
        self._memory.give_back(self._taken)
        self._total[:] = 0

    def check(self, frame: Bytes, weight: float) -> Checked:
        """What `add` would take, looked at first: FrameError on anything malformed, the update's norm otherwise.

        >>> import adaquantfl as aq
        >>> total = Accumulator(2)
        >>> update = total.check(aq.compress(np.array([3.0, -4.0]), s=5, key=0), weight=0.5)
        >>> update.s, update.norm
        (5, 5.0)
        >>> total.add(update)
        """
        return check_frame(frame, weight, self.dimension)

    def add(self, frame: Bytes | Checked, weight: float = 1.0) -> None:
        """Add weight x the frame's vector. A refused frame (FrameError) leaves the sum as it was.

        A frame that `check` has seen has its weight already.

        >>> import adaquantfl as aq
        >>> total, frames = Accumulator(2), [aq.compress(np.array([3.0, -4.0]), s=5, key=client) for client in range(2)]
        >>> total.add(frames[0], weight=0.25)
        >>> total.add(frames[1], weight=0.75)
        >>> total.result(), total.frames
        (array([ 3., -4.], dtype=float32), 2)
        """
        if isinstance(frame, Checked) or self.dimension < _SHORT:
            self._add(frame if isinstance(frame, Checked) else self.check(frame, weight))
            return
        with self._memory.use() as taken:
            self._add(check_frame(frame, weight, self.dimension), taken)

    def _add(self, ready: Checked, taken: list[Block] | None = None) -> None:
        if ready.frame.header.dimension != self.dimension:
            raise FrameError(f"The frame has dimension {ready.frame.header.dimension:,}, expected {self.dimension:,}.")
        if self._bound + ready.bound > LARGEST_FLOAT:
            raise FrameError(f"The sum could reach {self._bound + ready.bound:g}, which is beyond float32.")
        self._bound += ready.bound
        self.frames += 1
        if taken:
            self._taken += taken
            taken.clear()
        self._waiting.append(ready)
        self._waiting_bytes += ready.nbytes
        if self._waiting_bytes > 4 * self.dimension:
            self.flush()

    def result(self, out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """The sum so far, as a copy: a new array, or `out`.

        >>> Accumulator(3).result()
        array([0., 0., 0.], dtype=float32)
        """
        self.flush()
        if out is None:
            return self._total.copy()
        out[:] = self._total
        return out

    def flush(self) -> None:
        """Decode and add what is waiting now; `result` does it too.

        >>> import adaquantfl as aq
        >>> total = Accumulator(2)
        >>> total.add(aq.compress(np.array([3.0, -4.0]), s=5, key=0))
        >>> total.flush()  # the frame's memory is free again
        >>> total.result()
        array([ 3., -4.], dtype=float32)
        """
        waiting, size = [frame.opened() for frame in self._waiting], self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        together = _TILES_TOGETHER if len(waiting) > 1 else self.dimension

        def work(first: int, last: int) -> None:
            for start in range(first, last, together):
                for frame in waiting:
                    frame.body.add(frame.steps, frame.offsets, self._total, start, min(start + together, last))

        tiles = -(-self.dimension // TILE)
        if waiting:
            over_ranges(work, tiles, smallest=2 if size > WORTH_A_THREAD else tiles)
        self._memory.give_back(self._taken)


@dataclass(frozen=True)
class Checked:
    """A well-formed frame with its weight worked in, ready to be added."""

    frame: Frame
    body: Body
    steps: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]
    largest: float  # what no element of the frame can exceed in size
    weight: float

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
        if self.s is None:
            parts = raw.values(self.frame)
        elif header.norm == L2:
            parts = header.scales
        else:
            parts = levels_of(header, self.body).dequantize()
        return float(np.linalg.norm(parts.astype(np.float64)))

    @property
    def decoded_norm(self) -> float:
        """The l2 norm of what the frame decodes to, whatever its header says; without its weight."""
        # Not by BLAS, whose sums depend on the number of threads: weights are made from this number.
        return math.sqrt(
            sum(float(np.square(rows[0], dtype=np.float64).sum()) for _, rows in tiles([self.weighted(1.0)]))
        )

    @property
    def linear(self) -> bool:
        """Whether an element is a step of its segment times what the body holds."""
        return self.s is None or self.frame.header.kind.traits.linear

    @property
    def nbytes(self) -> int:
        """Memory that it keeps, and that adding it takes."""
        return self.frame.size + self.body.nbytes + (0 if self.linear else 4 * self.frame.header.dimension)

    def opened(self) -> Checked:
        """A frame whose body can be added tile by tile: the floats themselves where levels alone will not do."""
        if self.linear:
            return self
        floats = levels_of(self.frame.header, self.body).dequantize()
        return Checked(self.frame, raw.RawBody(floats), self.steps, self.offsets, self.largest, self.weight)

    @staticmethod
    def of(frame: Frame, weight: float) -> Checked:
        if not isinstance(weight, int | float | np.number) or not abs(weight) <= _FLOAT32_MAX:
            raise FrameError(f"The weight {weight!r} is not a finite float32.")
        header, body = frame.header, opened(frame)
        offsets = Segments.of(header.segments, header.dimension).offsets
        largest = float(np.abs(raw.values(frame)).max()) if header.quantizer == FLOAT32 else header.bound
        return Checked(frame, body, _steps(header, weight, largest), offsets, largest, weight)

    def weighted(self, weight: float) -> Checked:
        """The same frame with another weight."""
        return replace(self, steps=_steps(self.frame.header, weight, self.largest), weight=weight)


def tiles(frames: Sequence[Checked]) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Several frames decoded side by side: where a tile is, and its values times the weights, a row for each frame.

    The rows are used again for the next tile.
    """
    if not frames:
        return
    opened, dimension = [frame.opened() for frame in frames], frames[0].frame.header.dimension
    decoded = np.zeros(dimension, dtype=np.float32)  # bodies add to a whole vector
    rows = np.empty((len(frames), min(TILE, dimension)), dtype=np.float32)
    for tile in range(-(-dimension // TILE)):
        here = slice(tile * TILE, min((tile + 1) * TILE, dimension))
        size = here.stop - here.start
        for row, frame in zip(rows, opened, strict=True):
            decoded[here] = 0
            frame.body.add(frame.steps, frame.offsets, decoded, tile, tile + 1)
            row[:size] = decoded[here]
        yield here, rows[:, :size]


def check_frame(frame: Bytes, weight: float, dimension: int) -> Checked:
    """A frame looked at from end to end, ready to be added: FrameError on anything malformed."""
    # A buffer that the caller may use again is copied: the frame waits.
    return Checked.of(read_frame(frame if isinstance(frame, bytes) else bytes(frame), dimension), weight)


def _steps(header: Header, weight: float, largest: float) -> npt.NDArray[np.float32]:
    """What each level of a segment is multiplied by; FrameError where an element could then leave float32."""
    if abs(weight) * largest > LARGEST_FLOAT:
        raise FrameError(f"Values up to {largest:g} with weight {weight:g} are beyond float32.")
    if header.quantizer == FLOAT32 or not header.kind.traits.linear:
        return np.array([weight], dtype=np.float32)
    parts = header.s if header.kind.traits.divides else 1
    if len(header.scales) == 1:  # without arrays on the way, which a short vector would wait for
        return np.array([float(weight) * float(header.scales[0]) / parts], dtype=np.float32)
    return (weight * header.scales.astype(np.float64) / parts).astype(np.float32)
