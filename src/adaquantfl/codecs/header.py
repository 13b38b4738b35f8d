"""What a frame says about its body: everything, or without what its receiver knows. docs/wire-format.md has the bytes.

A frame says everything about itself, so that it can be stored and read anywhere. Within a round most of that is known.
The server asked for the quantizer, the segments and the key, and the frames of a round are alike. With small models
this is up to half of a frame. `Known` is what both ends know; the short form then has no checksum either, because the
message around it has one.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..quantizers.base import LARGEST_FLOAT, MOST_BLOCK, Quantizer, Traits, are_blocks, top
from ..quantizers.levels import Levels
from ..quantizers.registry import FLOAT32_TAG, by_tag, find
from ..quantizers.segments import Segments, bucket_lengths
from ..quantizers.vectors import MAX_DIMENSION
from .varints import read_varint, read_varints, varint

MAGIC = b"AQFL"
VERSION = 1
UNIFORM, FLOAT32 = 0, FLOAT32_TAG  # the paper's quantizer; the values themselves, not quantized
LONGEST = 65_536  # bytes of a body whose header is short; with a norm per tensor a longer one saves about 0.1 %

# magic, version, quantizer, codec, layout, s, scales, dimension, body length
_FIXED_PART = struct.Struct("<4sBBBBIIQQ")
_KEY = struct.Struct("<Q")
HEADER_SIZE = _FIXED_PART.size
_WHOLE, _BUCKETS, _LIST = 0, 1, 2  # layouts: how the segments are written
_AS_KNOWN, _SMALL_BLOCKS, _LARGE_BLOCKS, _LISTED = range(4)  # what the segments of a short header are
_OTHER_KEY = 4
_MOST_FLAGS = _LISTED | _OTHER_KEY
_NONE = np.empty(0, dtype=np.float32)  # scales that are not read yet

Offsets = npt.NDArray[np.int64]
Lengths = Offsets | None
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Header:
    """What a frame says about its body."""

    quantizer: int
    codec: int
    s: int
    dimension: int
    segments: Lengths
    scales: Floats
    numbers: Floats | None = None  # of the quantizers that send more than scales
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
        return top(self.kind.traits, self.s, self.numbers)

    @cached_property
    def bound(self) -> float:
        """What no element of a frame of levels can exceed in size."""
        return self.kind.bound(self)


@dataclass(frozen=True, eq=False)
class Known:
    """What a receiver knows of a frame before it comes. segments: None is one norm for all; key: None is not known."""

    quantizer: int
    dimension: int
    segments: Lengths
    key: int | None = None

    @staticmethod
    def like(header: Header) -> Known:
        """Of frames that are like one with this header, except for its key."""
        return Known(header.quantizer, header.dimension, header.segments)

    def cut(self, way: int) -> Lengths:
        """The segments, or the blocks that a rotating quantizer cuts them into."""
        if way == _AS_KNOWN:
            return self.segments
        from ..quantizers.rotation import LARGEST_BLOCK, blocks  # with it come the kernels

        largest = LARGEST_BLOCK if way == _SMALL_BLOCKS else MOST_BLOCK
        return blocks(Segments.of(self.segments, self.dimension), largest).lengths

    def way_to(self, header: Header) -> int:
        """How to say the segments of a header: the first way that gives them."""
        for way in (_AS_KNOWN, _SMALL_BLOCKS, _LARGE_BLOCKS) if header.kind.traits.rotates else (_AS_KNOWN,):
            lengths = self.cut(way)
            if lengths is None or header.segments is None:
                if lengths is header.segments:
                    return way
            elif np.array_equal(lengths, header.segments):
                return way
        return _LISTED


def pack(header: Header, body_size: int, known: Known | None) -> bytes:
    """The bytes before a body: short where the receiver knows enough, and whole otherwise."""
    alike = known is not None and (header.quantizer, header.dimension) == (known.quantizer, known.dimension)
    if known is None or not alike or body_size > LONGEST:
        return _pack_whole(header, body_size)
    way, lengths = known.way_to(header), b""
    if way == _LISTED:
        if header.segments is None:
            return _pack_whole(header, body_size)
        lengths = varint(len(header.segments)) + b"".join(varint(int(n)) for n in header.segments)
    other_key = header.key is not None and header.key != known.key
    head = bytes([way | _OTHER_KEY * other_key, header.codec]) + varint(header.s) + lengths
    return head + _pack_tail(header if other_key else replace(header, key=None))


def is_whole(head: bytes | memoryview | npt.NDArray[np.uint8]) -> bool:
    """Whether a frame that begins like this says everything about itself, and so ends with a checksum."""
    return len(head) == 0 or head[0] > _MOST_FLAGS


def _pack_whole(header: Header, body_size: int) -> bytes:
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
        MAGIC, VERSION, header.quantizer, header.codec, layout, header.s, len(header.scales), header.dimension,
        body_size,
    )  # fmt: skip
    head = fixed + lengths + _pack_tail(header)
    return head + bytes(-len(head) % 8)  # kernels read whole words of the body


def _pack_tail(header: Header) -> bytes:
    """The numbers of a header behind its segments: scales, further numbers and key."""
    tail = np.asarray(header.scales, dtype="<f4").tobytes()
    if header.numbers is not None:
        tail += header.numbers.astype("<f4").tobytes()
    return tail if header.key is None else tail + _KEY.pack(header.key)


def body_size_in(view: memoryview) -> int:
    """The bytes of the body that a whole frame says it has; FrameError where it is none of this version."""
    magic, version, *_, body_size = _FIXED_PART.unpack_from(view)
    if magic != MAGIC:
        raise FrameError(f"Not a frame: it starts with {bytes(magic)!r} instead of {MAGIC!r}.")
    if version != VERSION:
        raise FrameError(f"The frame has version {version}; this software reads version {VERSION}. Update one of them.")
    return int(body_size)


def read_whole(view: memoryview, dimension: int | None) -> tuple[Header, int]:
    """A header that says everything, and where the body starts. dimension: what the receiver expects."""
    _, _, quantizer, codec, layout, s, scales, size, _ = _FIXED_PART.unpack_from(view)
    traits = None if quantizer == FLOAT32 else by_tag(quantizer)[0].traits
    if dimension is not None and size != dimension:
        raise FrameError(
            f"The frame has dimension {size:,}, expected {dimension:,}: sender and receiver differ in model."
        )
    if not 1 <= size <= MAX_DIMENSION:
        raise FrameError(f"Dimension {size:,} is outside 1 to 2^32.")
    if not traits and (codec, layout, s, scales) != (FLOAT32, _WHOLE, 0, 0):
        raise FrameError("A frame of float32 values has codec 255, layout 0, s = 0 and no scales; this one has not.")
    if traits and scales == 0:
        raise FrameError("The frame has 0 scales; levels need at least one.")
    segments, position = _read_segments(view, layout, scales, size)
    header = Header(quantizer, codec, s, size, segments, _NONE)
    header, position = _read_tail(view, position, header, traits, scales, None)
    start = position + -position % 8
    if any(view[position:start]):
        raise FrameError("The padding behind the header is not zero.")
    return header, start


def read_short(view: memoryview, known: Known) -> tuple[Header, int]:
    """A short header, and where the body starts."""
    if len(view) < 3 or known.quantizer == FLOAT32:
        raise FrameError("A short frame has at least three bytes, and levels.")
    flags, codec, (s, position) = view[0], view[1], read_varint(view, 2)
    way, kind, keyed = flags & _LISTED, by_tag(known.quantizer)[0], bool(flags & _OTHER_KEY)
    traits = kind.traits
    if (way in (_SMALL_BLOCKS, _LARGE_BLOCKS) and not traits.rotates) or (keyed and not traits.keyed):
        raise FrameError(f"A short frame of {kind.name} cannot begin with {flags}.")
    segments = None if way == _LISTED else known.cut(way)
    if way == _LISTED:
        count, position = read_varint(view, position)
        if not 1 <= count <= len(view):
            raise FrameError(f"{count:,} segments do not fit a short frame of {len(view):,} bytes.")
        segments, position = _read_list(view, position, count, known.dimension)
    if traits.keyed and not keyed and known.key is None:
        raise FrameError(f"A short frame of {kind.name} lacks its key.")
    header = Header(known.quantizer, codec, s, known.dimension, segments, _NONE)
    scales = 1 if segments is None else len(segments)
    return _read_tail(view, position, header, traits, scales, None if keyed else known.key)


def _read_tail(
    view: memoryview, position: int, header: Header, traits: Traits | None, scales: int, key: int | None
) -> tuple[Header, int]:
    """The header with its scales, further numbers and key, checked, and the position behind them. key: if known."""
    values, position = _read_floats(view, position, scales), position + 4 * scales
    numbers = None
    if traits and traits.number:
        numbers, position = _read_floats(view, position, 1), position + 4
    if traits and not traits.keyed:
        key = None
    elif traits and key is None:
        if position + _KEY.size > len(view):
            raise FrameError("Truncated: the header ends before its key.")
        (key,), position = _KEY.unpack_from(view, position), position + _KEY.size
    if traits and not 1 <= header.s <= traits.most:
        raise FrameError(f"s = {header.s} is outside 1 to {traits.most}.")
    found = replace(header, scales=values, numbers=numbers, key=key)
    check(found)
    return found, position


def check(header: Header) -> None:
    """Refuse scales, further numbers and segments that the quantizer does not allow."""
    scales, numbers = header.scales, header.numbers
    if not (0 <= scales[0] < math.inf if len(scales) == 1 else np.isfinite(scales).all() and (scales >= 0).all()):
        raise FrameError("A scale is negative, NaN or infinite; a norm is finite and at least 0.")
    if header.quantizer == FLOAT32:
        return
    name, traits = header.kind.name, header.kind.traits
    if (header.key is not None) != traits.keyed or (header.key is not None and not 0 <= header.key < 2**64):
        raise FrameError(f"The key is {header.key}; {name} {'needs 64 bits' if traits.keyed else 'has none'}.")
    if (0 if numbers is None else len(numbers)) != bool(traits.number):
        raise FrameError(f"{name} has {int(bool(traits.number))} further numbers.")
    if traits.number and numbers is not None and not traits.number.least <= numbers[0] <= traits.number.most:
        raise FrameError(f"The {traits.number.name} is outside {traits.number.least:g} to {traits.number.most:g}.")
    if traits.rotates:
        lengths = np.array([header.dimension]) if header.segments is None else header.segments
        if not are_blocks(lengths):
            raise FrameError(f"Every segment of {name} has 2^k elements, {MOST_BLOCK:,} at most; these have not.")
    if header.bound > LARGEST_FLOAT:
        raise FrameError(
            f"With a scale of {scales.max():g}, an element could decode to {header.bound:g}, beyond {LARGEST_FLOAT:g}."
        )


def _read_segments(view: memoryview, layout: int, count: int, dimension: int) -> tuple[Lengths, int]:
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
    return _read_list(view, position, count, dimension)


def _read_list(view: memoryview, position: int, count: int, dimension: int) -> tuple[Lengths, int]:
    lengths, position = read_varints(view, position, count)
    if lengths.min() < 1 or lengths.sum() != dimension:
        raise FrameError(f"The segments hold {lengths.sum():,} elements; the dimension is {dimension:,}.")
    return lengths, position


def _read_floats(view: memoryview, position: int, count: int) -> Floats:
    if position + 4 * count > len(view):
        raise FrameError("Truncated: the header ends before its last scale.")
    return np.frombuffer(view[position : position + 4 * count], dtype="<f4").astype(np.float32)
