"""Short frames: a frame without what its receiver knows. docs/wire-format.md specifies these bytes.

A frame says everything about itself, so that it can be stored and read anywhere. Within a round most of that is known.
The server asked for the quantizer, the segments and the key, and the frames of a round are alike. With small models
this is up to half of a frame. The checksum is left out too: a reply has its own, and a parcel has the model's digest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..codecs.frame import FLOAT32, Bytes, Header, framed, pack_tail, read_frame, read_tail
from ..codecs.varints import read_varint, read_varints, varint
from ..errors import FrameError
from ..quantizers.base import MOST_BLOCK
from ..quantizers.registry import by_tag
from ..quantizers.segments import Segments

_AS_KNOWN, _SMALL_BLOCKS, _LARGE_BLOCKS, _LISTED = range(4)  # what the segments are
_OTHER_KEY = 4
LONGEST = 65_536  # bytes of a frame that is shortened; with a norm per tensor a longer one saves about 0.1 %


@dataclass(frozen=True, eq=False)
class Known:
    """What a receiver knows of a frame before it comes. segments: None is one norm for all; key: None is not known."""

    quantizer: int
    dimension: int
    segments: npt.NDArray[np.int64] | None
    key: int | None = None

    @staticmethod
    def like(frame: Bytes, dimension: int) -> Known:
        """Of a frame that is like this one, except for its key. FrameError where it has another dimension."""
        header = read_frame(frame, dimension).header
        return Known(header.quantizer, header.dimension, header.segments)

    def cut(self, way: int) -> npt.NDArray[np.int64] | None:
        """The segments, or the blocks that a rotating quantizer cuts them into."""
        if way == _AS_KNOWN:
            return self.segments
        from ..quantizers.rotation import LARGEST_BLOCK, blocks  # with it come the kernels

        largest = LARGEST_BLOCK if way == _SMALL_BLOCKS else MOST_BLOCK
        return blocks(Segments.of(self.segments, self.dimension), largest).lengths

    def way_to(self, header: Header) -> int:
        """How to say the segments of a header: the first way that gives them."""
        for way in (_AS_KNOWN, _SMALL_BLOCKS, _LARGE_BLOCKS) if header.kind.rotates else (_AS_KNOWN,):
            lengths = self.cut(way)
            if lengths is None or header.segments is None:
                if lengths is header.segments:
                    return way
            elif np.array_equal(lengths, header.segments):
                return way
        return _LISTED


def shorten(frame: Bytes, known: Known) -> bytes | None:
    """A frame without what is known of it; None where it is long, or of another kind than is known.

    >>> import adaquantfl as aq
    >>> frame = aq.compress(np.arange(1000.0), s=1, key=aq.stream_key(0, 0, 0))
    >>> known = Known(quantizer=0, dimension=1000, segments=None)
    >>> len(frame) - len(shorten(frame, known)), lengthen(shorten(frame, known), known) == frame
    (37, True)
    """
    if len(frame) > LONGEST:
        return None
    parsed = read_frame(frame)
    header = parsed.header
    if header.quantizer == FLOAT32 or (header.quantizer, header.dimension) != (known.quantizer, known.dimension):
        return None
    way, lengths = known.way_to(header), b""
    if way == _LISTED:
        if header.segments is None:
            return None
        lengths = varint(len(header.segments)) + b"".join(varint(int(n)) for n in header.segments)
    other_key = header.key is not None and header.key != known.key
    head = bytes([way | _OTHER_KEY * other_key, header.codec]) + varint(header.s) + lengths
    tail = pack_tail(header if other_key else replace(header, key=None))
    return b"".join((head, tail, parsed.body.data))


def lengthen(data: Bytes, known: Known) -> bytes:
    """The frame that was shortened; FrameError where it cannot be one. What it says is checked when it is read."""
    view = memoryview(data).cast("B")
    if len(view) < 3 or known.quantizer == FLOAT32:
        raise FrameError("A short frame has at least three bytes, and levels.")
    flags, codec, (s, position) = view[0], view[1], read_varint(view, 2)
    way, kind = flags & _LISTED, by_tag(known.quantizer)[0]
    if (
        flags > _LISTED | _OTHER_KEY
        or (way in (_SMALL_BLOCKS, _LARGE_BLOCKS) and not kind.rotates)
        or (flags & _OTHER_KEY and not kind.keyed)
    ):
        raise FrameError(f"A short frame of {kind.name} cannot begin with {flags}.")
    segments = None if way == _LISTED else known.cut(way)
    if way == _LISTED:
        count, position = read_varint(view, position)
        if not 1 <= count <= len(view):
            raise FrameError(f"{count:,} segments do not fit a short frame of {len(view):,} bytes.")
        segments, position = read_varints(view, position, count)
        if segments.min() < 1 or segments.sum() != known.dimension:
            raise FrameError(f"The segments hold {segments.sum():,} elements; the dimension is {known.dimension:,}.")
    scales = 1 if segments is None else len(segments)
    (values, numbers, key), position = read_tail(view, position, kind, scales, keyed=bool(flags & _OTHER_KEY))
    if kind.keyed and not flags & _OTHER_KEY:
        key = known.key
    if kind.keyed and key is None:
        raise FrameError(f"A short frame of {kind.name} lacks its key.")
    if s > kind.most:
        raise FrameError(f"s = {s} is outside 1 to {kind.most}.")
    header = Header(known.quantizer, codec, s, known.dimension, segments, values, numbers, key)
    return framed(header, [bytes(view[position:])])
