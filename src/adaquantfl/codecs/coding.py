"""Levels to frames and back, and many frames to one weighted sum."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..quantizers.base import L2, LARGEST_FLOAT, Lengths, Quantizer
from ..quantizers.levels import Levels, level_dtype, quantize
from ..quantizers.registry import find
from ..quantizers.segments import Segments
from ..quantizers.streams import split_key
from ..quantizers.vectors import FloatVector, Stretch, check_levels
from ..threads import WORTH_A_THREAD, over_ranges
from . import raw
from .frame import FLOAT32, TILE, Bytes, Frame, Header, check, read_frame
from .registry import Body, Writer, by_tag
from .registry import find as find_codec

_FLOAT32_MAX = float(np.finfo(np.float32).max)
MOST_ELEMENTS = 2**26  # that `decode` makes of a frame whose dimension nobody has named
_TILES_TOGETHER = 8  # 2 MB of the sum stay in the cache while every waiting frame is added to them


def encode(levels: Levels, codec: str | Writer = "auto") -> bytes:
    """Levels to a frame, losslessly. codec: "fixed" is the paper's; "auto" takes the smallest; or an object.

    >>> levels = quantize(np.array([3.0, -4.0], dtype=np.float32), s=5, key=0)
    >>> decode(encode(levels)) == levels
    True
    """
    return find_codec(codec).encode(_checked(levels))


def compress(
    x: FloatVector,
    s: int,
    key: int,
    codec: str | Writer = "auto",
    segments: Lengths | None = None,
    stretch: Stretch = 1.0,
    quantizer: str | Quantizer = "uniform",
    norm: str | None = None,
) -> bytes:
    """Quantize and encode: the bytes of `encode(quantize(x, s, key, segments, stretch, quantizer, norm), codec)`.

    With the paper's quantizer it is one pass, and faster.

    >>> x = np.linspace(-1, 1, 5000, dtype=np.float32)
    >>> compress(x, s=3, key=1) == encode(quantize(x, s=3, key=1))
    True
    """
    writer, kind = find_codec(codec), find(quantizer)
    ready = kind.prepare(x, s, segments, stretch, kind.norm(norm))
    if ready is None:
        return writer.encode(quantize(x, s, key, segments, stretch, kind, norm))
    low, high = split_key(key)
    lengths = None if segments is None else ready.segments.lengths
    return writer.compress(ready, int(s), low, high, lengths)


def decode(frame: Bytes, dimension: int | None = None, most: int = MOST_ELEMENTS) -> Levels:
    """A frame to levels. FrameError on anything malformed.

    A few bytes can stand for billions of zeros. Pass the dimension that you expect; without it, a frame of more than
    `most` elements is refused.

    >>> decode(b"nonsense")
    Traceback (most recent call last):
    adaquantfl.errors.FrameError: Truncated: 8 bytes, but a frame has at least 36. Ask the sender for the whole message.
    """
    parsed = read_frame(frame, dimension)
    if parsed.header.quantizer == FLOAT32:
        raise FrameError("The frame carries float32 values, not levels. Read it with aq.decode_float32(frame).")
    if dimension is None and parsed.header.dimension > most:
        raise FrameError(
            f"The frame has {parsed.header.dimension:,} elements. Without a dimension, {most:,} are decoded at most: "
            "pass the dimension that you expect."
        )
    return _levels(parsed.header, _opened(parsed))


def _opened(frame: Frame) -> Body:
    """A frame's body, checked from end to end."""
    try:
        return raw.open_body(frame) if frame.header.quantizer == FLOAT32 else by_tag(frame).open_body(frame)
    except MemoryError:
        raise FrameError(f"{frame.header.dimension:,} elements do not fit in memory.") from None


def _levels(header: Header, body: Body) -> Levels:
    try:
        values = np.empty(header.dimension, dtype=level_dtype(header.top))
    except MemoryError:
        raise FrameError(f"{header.dimension:,} elements do not fit in memory.") from None
    body.decode(values)
    scale = header.scales[0] if header.segments is None else header.scales
    return Levels(values, scale, header.s, header.segments, header.kind.name, header.norm, header.key, header.numbers)


class Accumulator:
    """The server's sum of p_i Q(update_i) (eq. 3): frames go in, one float32 vector comes out.

    A frame is checked when it is added; several wait to be decoded and added up together, tile by tile, so that the
    sum is read and written once for all of them. Every element adds up in the order of the calls, whatever the number
    of threads, and memory is O(dimension) for any number of frames. Floating-point sums depend on that order: where
    frames arrive in any order, pass each one's place (its client number) as `order`, and the result does not depend
    on the arrival; frames that come before their turn are held until then.

    >>> total = Accumulator(2)
    >>> total.add(compress(np.array([3.0, -4.0], dtype=np.float32), s=5, key=0), weight=0.5)
    >>> total.result()
    array([ 1.5, -2. ], dtype=float32)
    """

    def __init__(self, dimension: int) -> None:
        if dimension < 1:
            raise FrameError(f"An accumulator of dimension {dimension} holds nothing; it must be at least 1.")
        self.dimension = dimension
        self.frames = 0
        self._total = np.zeros(dimension, dtype=np.float32)
        self._held: dict[int, Checked] = {}  # frames that came before their turn
        self._turn = 0
        self._waiting: list[Checked] = []
        self._waiting_bytes = 0
        self._bound = 0.0  # what no element of the sum can exceed in size

    def check(self, frame: Bytes, weight: float) -> Checked:
        """What `add` would take, looked at first: FrameError on anything malformed, the update's norm otherwise.

        >>> total = Accumulator(2)
        >>> update = total.check(compress(np.array([3.0, -4.0]), s=5, key=0), weight=0.5)
        >>> update.s, update.norm
        (5, 5.0)
        >>> total.add(update)
        """
        return check_frame(frame, weight, self.dimension)

    def add(self, frame: Bytes | Checked, weight: float = 1.0, order: int | None = None) -> None:
        """Add weight x the frame's vector. A refused frame (FrameError) leaves the sum as it was.

        order: 0, 1, 2, ... where frames arrive in any order; each number once, and all frames with one or none.
        A frame that `check` has seen has its weight already.

        >>> total, frames = Accumulator(2), [compress(np.array([3.0, -4.0]), s=5, key=client) for client in range(2)]
        >>> total.add(frames[1], weight=0.75, order=1)  # it came first, and waits for its turn
        >>> total.add(frames[0], weight=0.25, order=0)
        >>> total.result(), total.frames
        (array([ 3., -4.], dtype=float32), 2)
        """
        if order is not None and (order < self._turn or order in self._held):
            raise FrameError(f"A frame with order {order} was added already, or the result has been read since.")
        ready = frame if isinstance(frame, Checked) else self.check(frame, weight)
        if ready.frame.header.dimension != self.dimension:
            raise FrameError(f"The frame has dimension {ready.frame.header.dimension:,}, expected {self.dimension:,}.")
        if self._bound + ready.bound > LARGEST_FLOAT:
            raise FrameError(f"The sum could reach {self._bound + ready.bound:g}, which is beyond float32.")
        self._bound += ready.bound
        self.frames += 1
        if order is None:
            self._enqueue(ready)
            return
        self._held[order] = ready
        while self._turn in self._held:
            self._enqueue(self._held.pop(self._turn))
            self._turn += 1

    def result(self) -> npt.NDArray[np.float32]:
        """The sum so far, as a copy. Frames still held are added in their order; who is missing is passed over.

        >>> Accumulator(3).result()
        array([0., 0., 0.], dtype=float32)
        """
        for place in sorted(self._held):
            self._enqueue(self._held.pop(place))
            self._turn = place + 1
        self.flush()
        return self._total.copy()

    def _enqueue(self, ready: Checked) -> None:
        self._waiting.append(ready)
        self._waiting_bytes += ready.nbytes
        if self._waiting_bytes > 4 * self.dimension:
            self.flush()

    def flush(self) -> None:
        """Decode and add what is waiting now; `result` does it too.

        >>> total = Accumulator(2)
        >>> total.add(compress(np.array([3.0, -4.0]), s=5, key=0))
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
        """The l2 norm of the vector that was quantized, where the scales are the norms of its segments (times the
        stretch of the levels); otherwise that of the vector that the frame decodes to, the quantizer's noise included.
        """
        header = self.frame.header
        if self.s is None:
            parts = raw.values(self.frame)
        elif header.norm == L2:
            parts = header.scales
        else:
            parts = _levels(header, self.body).dequantize()
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
        return self.s is None or self.frame.header.kind.linear

    @property
    def nbytes(self) -> int:
        """Memory that it keeps, and that adding it takes."""
        return self.frame.size + self.body.nbytes + (0 if self.linear else 4 * self.frame.header.dimension)

    def opened(self) -> Checked:
        """A frame whose body can be added tile by tile: the floats themselves where levels alone will not do."""
        if self.linear:
            return self
        floats = _levels(self.frame.header, self.body).dequantize()
        return Checked(self.frame, raw.RawBody(floats), self.steps, self.offsets, self.largest, self.weight)

    @staticmethod
    def of(frame: Frame, weight: float) -> Checked:
        header, body = frame.header, _opened(frame)
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
    if not isinstance(weight, int | float | np.number) or not abs(weight) <= _FLOAT32_MAX:
        raise FrameError(f"The weight {weight!r} is not a finite float32.")
    # A buffer that the caller may use again is copied: the frame waits.
    return Checked.of(read_frame(frame if isinstance(frame, bytes) else bytes(frame), dimension), weight)


def _steps(header: Header, weight: float, largest: float) -> npt.NDArray[np.float32]:
    """What each level of a segment is multiplied by; FrameError where an element could then leave float32."""
    if abs(weight) * largest > LARGEST_FLOAT:
        raise FrameError(f"Values up to {largest:g} with weight {weight:g} are beyond float32.")
    if header.quantizer == FLOAT32 or not header.kind.linear:
        return np.array([weight], dtype=np.float32)
    scales = weight * header.scales.astype(np.float64)
    return (scales / (header.s if header.kind.divides else 1)).astype(np.float32)


def _checked(levels: Levels) -> Levels:
    """Refuse Levels that were put together by hand and do not hold together; plain arrays for the kernels otherwise."""
    check_levels(levels.s, find(levels.quantizer).most)
    values, scales = np.asarray(levels.values), levels.scales
    if values.ndim != 1 or values.size == 0 or not np.issubdtype(values.dtype, np.signedinteger):
        raise FrameError(f"Levels need a 1-D array of signed integers, got {values.dtype} of shape {values.shape}.")
    if levels.norm not in find(levels.quantizer).tags:
        raise FrameError(f"norm={levels.norm!r}: {levels.quantizer} does not have it.")
    if len(scales) != Segments.of(levels.segments, levels.dimension).count:
        raise FrameError(f"{len(scales)} scales for {Segments.of(levels.segments, levels.dimension).count} segments.")
    check(Header.of(levels, 0))
    top = levels.top
    if values.max() > top or values.min() < -top:
        allowed = "-s to s" if top == levels.s else f"-{top} to {top}"
        raise FrameError(f"The levels reach from {values.min()} to {values.max()}; s = {levels.s} allows {allowed}.")
    return replace(levels, values=np.ascontiguousarray(values, dtype=level_dtype(top)), s=int(levels.s))
