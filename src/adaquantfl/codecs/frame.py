"""The frame: a header that says everything a receiver needs, a body written by one codec, and a CRC-32 over both.

docs/wire-format.md is the specification. A change of these bytes is a new VERSION.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..memory import LARGE, as_bytes, empty_bytes
from ..quantizers.base import LARGEST_FLOAT, MOST_BLOCK, Quantizer, are_blocks
from ..quantizers.levels import Levels
from ..quantizers.registry import FLOAT32_TAG, by_tag, find
from ..quantizers.segments import bucket_lengths
from ..quantizers.vectors import MAX_DIMENSION
from .checksum import crc32
from .varints import read_varint, read_varints, varint

MAGIC = b"AQFL"
VERSION = 1
UNIFORM, FLOAT32 = 0, FLOAT32_TAG  # the paper's quantizer; the values themselves, not quantized
TILE = 65_536  # elements that are decoded and added at a time; codecs cut their bodies at multiples of it

_FIXED_PART = struct.Struct(
    "<4sBBBBIIQQ"
)  # magic, version, quantizer, codec, layout, s, scales, dimension, body length
_CRC = struct.Struct("<I")
_FLOATS = np.dtype("<f4")
_KEY = struct.Struct("<Q")
HEADER_SIZE, CRC_SIZE = _FIXED_PART.size, _CRC.size
_WHOLE, _BUCKETS, _LIST = 0, 1, 2  # layouts: how the segments are written

Bytes = bytes | bytearray | memoryview
Part = bytes | npt.NDArray[np.uint8]
Tail = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | None, int | None]


@dataclass(frozen=True)
class Header:
    """What a frame says about its body."""

    quantizer: int
    codec: int
    s: int
    dimension: int
    segments: npt.NDArray[np.int64] | None
    scales: npt.NDArray[np.float32]
    numbers: npt.NDArray[np.float32] | None = None  # of the quantizers that send more than scales
    key: int | None = None

    @staticmethod
    def of(levels: Levels, codec: int) -> Header:
        """The header of a frame that carries these levels."""
        tag = find(levels.quantizer).tags[levels.norm]
        return Header(
            tag, codec, levels.s, levels.dimension, levels.segments, levels.scales, levels.numbers, levels.key
        )

    @property
    def kind(self) -> Quantizer:
        """The quantizer of a frame of levels."""
        return by_tag(self.quantizer)[0]

    @property
    def norm(self) -> str:
        """What the scales are norms of; "" where they are none."""
        return by_tag(self.quantizer)[1]

    @property
    def top(self) -> int:
        """The largest magnitude of a level."""
        return self.kind.top(self.s, self.numbers)

    @cached_property
    def bound(self) -> float:
        """What no element of a frame of levels can exceed in size."""
        return self.kind.bound(self.s, self.scales, self.numbers, self.segments, self.dimension)


@dataclass(frozen=True)
class Frame:
    """A frame taken apart; `body` is a view of the received bytes."""

    header: Header
    body: npt.NDArray[np.uint8]
    size: int


def write_frame(header: Header, body_size: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Allocate a frame and write its header. Returns the frame and the view of it that the codec fills."""
    head = _pack_header(header, body_size)
    frame = empty_bytes(len(head) + body_size + _CRC.size)
    frame[: len(head)] = np.frombuffer(head, dtype=np.uint8)
    return frame, frame[len(head) : len(head) + body_size]


def seal(frame: npt.NDArray[np.uint8]) -> bytes:
    """Write the checksum behind a filled frame and return it as bytes. Where memory is used again, they are a view."""
    frame[-_CRC.size :] = np.frombuffer(_CRC.pack(crc32(frame[: -_CRC.size].data)), dtype=np.uint8)
    return as_bytes(frame)


def framed(header: Header, parts: Sequence[Part]) -> bytes:
    """A frame whose body is these parts, one after the other."""
    size = sum(map(len, parts))
    if size < LARGE:
        whole = b"".join((_pack_header(header, size), *cast(Sequence[bytes], parts)))
        return whole + _CRC.pack(crc32(whole))
    frame, body = write_frame(header, size)
    place = 0
    for part in filter(len, parts):
        body[place : place + len(part)] = np.frombuffer(part, dtype=np.uint8)
        place += len(part)
    return seal(frame)


def read_frame(data: Bytes, dimension: int | None = None) -> Frame:
    """Check a frame and take it apart; FrameError says why it is refused. Allocates nothing of the frame's size."""
    try:
        view = memoryview(data).cast("B")
    except TypeError:
        raise FrameError(f"A frame is contiguous bytes, not {type(data).__name__}.") from None
    if len(view) < _FIXED_PART.size + _CRC.size:
        raise FrameError(
            f"Truncated: {len(view)} bytes, but a frame has at least {_FIXED_PART.size + _CRC.size}. "
            "Ask the sender for the whole message."
        )
    magic, version, quantizer, codec, layout, s, scales, size, body_size = _FIXED_PART.unpack_from(view)
    if magic != MAGIC:
        raise FrameError(f"Not a frame: it starts with {bytes(magic)!r} instead of {MAGIC!r}.")
    if version != VERSION:
        raise FrameError(f"The frame has version {version}; this software reads version {VERSION}. Update one of them.")
    if body_size > len(view):  # before the checksum, so that truncation is called by its name
        raise FrameError(f"Truncated: the body should have {body_size:,} bytes, the whole message has {len(view):,}.")
    (crc,) = _CRC.unpack_from(view, len(view) - _CRC.size)
    if crc32(view[: -_CRC.size]) != crc:
        raise FrameError("The checksum does not match: the frame was truncated or altered on its way. Send it again.")
    kind = None if quantizer == FLOAT32 else by_tag(quantizer)[0]
    if dimension is not None and size != dimension:
        raise FrameError(
            f"The frame has dimension {size:,}, expected {dimension:,}: sender and receiver differ in model."
        )
    if not 1 <= size <= MAX_DIMENSION:
        raise FrameError(f"Dimension {size:,} is outside 1 to 2^32.")
    if kind and not 1 <= s <= kind.most:
        raise FrameError(f"s = {s} is outside 1 to {kind.most}.")
    if not kind and (codec, layout, s, scales) != (FLOAT32, _WHOLE, 0, 0):
        raise FrameError("A frame of float32 values has codec 255, layout 0, s = 0 and no scales; this one has not.")
    if kind and scales == 0:
        raise FrameError("The frame has 0 scales; levels need at least one.")
    segments, position = _read_segments(view, layout, scales, size)
    tail, position = read_tail(view[: -_CRC.size], position, kind, scales)
    header = Header(quantizer, codec, s, size, segments, *tail)
    check(header)
    start = _aligned(position)
    if start + body_size + _CRC.size != len(view):
        raise FrameError(
            f"The frame has {len(view):,} bytes; its header asks for {start + body_size + _CRC.size:,}. "
            "Send exactly one frame per message."
        )
    if any(view[position:start]):
        raise FrameError("The padding behind the header is not zero.")
    body = np.frombuffer(view[start : start + body_size], dtype=np.uint8)
    return Frame(header, body, len(view))


def check(header: Header) -> None:
    """Refuse scales, further numbers and segments that the quantizer does not allow."""
    scales, numbers = header.scales, header.numbers
    if not (0 <= scales[0] < math.inf if len(scales) == 1 else np.isfinite(scales).all() and (scales >= 0).all()):
        raise FrameError("A scale is negative, NaN or infinite; a norm is finite and at least 0.")
    if header.quantizer == FLOAT32:
        return
    kind = header.kind
    if (header.key is not None) != kind.keyed or (header.key is not None and not 0 <= header.key < 2**64):
        raise FrameError(f"The key is {header.key}; {kind.name} {'needs 64 bits' if kind.keyed else 'has none'}.")
    if (0 if numbers is None else len(numbers)) != kind.numbers(len(scales)):
        raise FrameError(f"{kind.name} has {kind.numbers(len(scales))} further numbers for {len(scales)} scales.")
    if kind.number and numbers is not None and not _within(numbers, kind.number.least, kind.number.most):
        raise FrameError(f"A {kind.number.name} is outside {kind.number.least:g} to {kind.number.most:g}.")
    if kind.rotates:
        lengths = np.array([header.dimension]) if header.segments is None else header.segments
        if not are_blocks(lengths):
            raise FrameError(f"Every segment of {kind.name} has 2^k elements, {MOST_BLOCK:,} at most; these have not.")
    if header.bound > LARGEST_FLOAT:
        raise FrameError(
            f"With a scale of {scales.max():g}, an element could decode to {header.bound:g}, beyond {LARGEST_FLOAT:g}."
        )


def payload_size(data: Bytes) -> int:
    """Bytes of a frame's body, as its header says: the frame without its framing."""
    return int(_FIXED_PART.unpack_from(data)[-1])


def _pack_header(header: Header, body_size: int) -> bytes:
    layout, lengths = _WHOLE, b""
    if header.segments is not None:
        size, count = int(header.segments[0]), len(header.segments)
        # The count first: buckets of a first segment's length may be as many as elements.
        if count == -(-header.dimension // size) and np.array_equal(
            header.segments, bucket_lengths(header.dimension, size)
        ):
            layout, lengths = _BUCKETS, varint(size)
        else:
            layout, lengths = _LIST, b"".join(varint(int(n)) for n in header.segments)
    fixed = _FIXED_PART.pack(
        MAGIC,
        VERSION,
        header.quantizer,
        header.codec,
        layout,
        header.s,
        len(header.scales),
        header.dimension,
        body_size,
    )
    head = fixed + lengths + pack_tail(header)
    return head + bytes(_aligned(len(head)) - len(head))


def pack_tail(header: Header) -> bytes:
    """The numbers of a header behind its segments: scales, further numbers and key."""
    tail = np.asarray(header.scales, dtype=_FLOATS).tobytes()
    if header.numbers is not None and header.kind.number is not None:
        tail += header.numbers.astype(header.kind.number.wire).tobytes()
    if header.key is not None:
        tail += _KEY.pack(header.key)
    return tail


def read_tail(
    view: memoryview, position: int, kind: Quantizer | None, scales: int, keyed: bool = True
) -> tuple[Tail, int]:
    """What `pack_tail` wrote, and the position behind it. keyed: whether a key is there where the quantizer has one."""
    values, position = _read_floats(view, position, scales), position + 4 * scales
    numbers, key = None, None
    if kind and kind.number:
        count, wire = kind.numbers(scales), np.dtype(kind.number.wire)
        numbers, position = _read_floats(view, position, count, wire), position + count * wire.itemsize
    if kind and kind.keyed and keyed:
        key, position = _read_key(view, position), position + _KEY.size
    return (values, numbers, key), position


def _aligned(position: int) -> int:
    """The body starts at a multiple of 8, so that kernels read whole words."""
    return -(-position // 8) * 8


def _read_segments(
    view: memoryview, layout: int, count: int, dimension: int
) -> tuple[npt.NDArray[np.int64] | None, int]:
    position = _FIXED_PART.size
    # Every scale takes 4 bytes, so a count beyond this is a lie: refuse it before anything is allocated for it.
    if count > dimension or 4 * count > len(view) - position:
        raise FrameError(f"{count:,} scales do not fit a frame of {len(view):,} bytes and dimension {dimension:,}.")
    if layout == _WHOLE:
        if count > 1:  # float32 values have none
            raise FrameError(f"{count:,} scales, but no segments that they belong to.")
        return None, position
    if layout == _BUCKETS:
        size, position = read_varint(view, position)
        if size < 1 or -(-dimension // size) != count:
            raise FrameError(f"Buckets of {size:,} elements do not make {count:,} scales of dimension {dimension:,}.")
        return bucket_lengths(dimension, size), position
    if layout != _LIST:
        raise FrameError(f"Segment layout {layout} is unknown.")
    lengths, position = read_varints(view, position, count)
    if lengths.min() < 1 or lengths.sum() != dimension:
        raise FrameError(f"The segments hold {lengths.sum():,} elements; the dimension is {dimension:,}.")
    return lengths, position


def _read_floats(
    view: memoryview, position: int, count: int, wire: np.dtype[np.number] = _FLOATS
) -> npt.NDArray[np.float32]:
    end = position + count * wire.itemsize
    if end > len(view):
        raise FrameError("Truncated: the header ends before its last scale.")
    return np.frombuffer(view[position:end], dtype=wire).astype(np.float32)


def _read_key(view: memoryview, position: int) -> int:
    if position + _KEY.size > len(view):
        raise FrameError("Truncated: the header ends before its key.")
    return int(_KEY.unpack_from(view, position)[0])


def _within(numbers: npt.NDArray[np.float32], least: float, most: float) -> bool:
    return bool(((numbers >= least) & (numbers <= most)).all())
