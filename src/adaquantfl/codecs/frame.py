"""The frame: a header, a body written by one codec, and a CRC-32 over both. The core reads and writes them.

docs/wire-format.md is the specification; a change of these bytes is a new version. A frame says everything about
itself, so that it can be stored and read anywhere. Within a round most of that is known. The server asked for the
quantizer, the segments and the key, and the frames of a round are alike. With small models this is up to half of a
frame. `Known` is what both ends know; the short form then has no checksum either, because the message around it has
one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import core
from ..core import Bytes
from ..errors import FrameError
from ..open_registry import OUTSIDE_TAGS
from ..quantizers.base import LARGEST_FLOAT, Quantizer, top
from ..quantizers.levels import Levels
from ..quantizers.registry import FLOAT32_TAG, by_tag, find
from ..quantizers.segments import Segments

__all__ = ["FLOAT32", "TILE", "Bytes", "Frame", "Header", "Known", "framed", "payload_size", "read_frame"]

FLOAT32 = FLOAT32_TAG  # the values themselves, not quantized
TILE = 65_536  # elements that are decoded at a time
HEADER_SIZE, CRC_SIZE = 32, 4  # bytes, without segments and scales
_TAG_AT, _MOST_FLAGS = 5, 7  # where a frame's quantizer is; the largest first byte of a short frame

Lengths = npt.NDArray[np.int64] | None
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
    number: float | None = None  # of the quantizers that send more than scales
    key: int | None = None

    @staticmethod
    def of(levels: Levels, codec: int) -> Header:
        """The header of a frame that carries these levels."""
        tag = find(levels.quantizer).tags[levels.norm]
        return Header(tag, codec, levels.s, levels.dimension, levels.segments, levels.scales, levels.number, levels.key)

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
        return top(self.kind.traits, self.s, self.number)

    @cached_property
    def bound(self) -> float:
        """What no element of a frame of levels can exceed in size."""
        return self.kind.bound(self)

    def plan(self, known: Known | None) -> dict[str, Any]:
        """What the core's writers take besides the codec and the dimension."""
        return {
            "tag": self.quantizer,
            "s": self.s,
            "top": 0 if self.quantizer == FLOAT32 else self.top,
            "offsets": None if self.segments is None else Segments.of(self.segments, self.dimension).offsets,
            "scales": np.ascontiguousarray(self.scales, dtype=np.float32),
            "number": self.number,
            "key": self.key,
            "known": left_out(known),
        }


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

    @cached_property
    def told(self) -> core.Known:
        """The same, for the core."""
        offsets = None if self.segments is None else np.append(0, np.cumsum(self.segments))
        return core.Known(self.quantizer, self.dimension, offsets, self.key)


def left_out(known: Known | None) -> core.Known | None:
    """What a frame that is written need not say."""
    return None if known is None else known.told


@dataclass(frozen=True)
class Frame:
    """A frame whose header and checksum are right; `data` are the received bytes."""

    header: Header
    data: Bytes
    facts: Any = field(repr=False)  # the core's
    known: Known | None = None  # what the frame leaves out

    @property
    def size(self) -> int:
        """Bytes of the whole frame."""
        return len(self.data)

    @property
    def body(self) -> memoryview:
        """The bytes that its codec wrote."""
        start = int(self.facts.body_at)
        return memoryview(self.data)[start : start + int(self.facts.body_size)]

    def written(self, known: Known | None = None) -> bytes:
        """The frame's bytes for a receiver that knows this; None: for anybody."""
        return framed(self.header, self.body, known)


def framed(header: Header, body: Bytes, known: Known | None = None) -> bytes:
    """A frame of this body."""
    return core.frame(body, header.codec, header.dimension, **header.plan(known))


def read_frame(data: Bytes, dimension: int | None = None, known: Known | None = None) -> Frame:
    """Check a frame's header and checksum; FrameError says why it is refused. Nothing is allocated for its body.

    known: what the sender knew that this receiver knows; the frame may have left it out.
    """
    view = _bytes(data)
    short = known is not None and len(view) > 0 and view[0] <= _MOST_FLAGS
    tag = known.quantizer if known is not None and short else view[_TAG_AT] if len(view) > _TAG_AT else 0
    told = None if known is None else known.told
    facts = core.check(view, dimension, told, _outside(tag))
    header = _header(view, facts, told)
    if header.quantizer != FLOAT32 and header.bound > LARGEST_FLOAT:
        raise FrameError(
            f"With a scale of {header.scales.max():g}, an element could decode to {header.bound:g}, "
            f"beyond {LARGEST_FLOAT:g}."
        )
    return Frame(header, view, facts, known if short else None)


def _outside(tag: int) -> Any:
    """What the core has to know of a quantizer of another package; None where it is none, or unknown here."""
    try:
        return traits_struct(by_tag(tag)[0]) if tag in OUTSIDE_TAGS else None
    except FrameError:
        return None


def _bytes(data: Bytes) -> Bytes:
    if isinstance(data, bytes):
        return data
    try:
        view = memoryview(data).cast("B")
        return view if isinstance(view.obj, bytes) else bytes(view)  # nobody may change it between check and use
    except TypeError:
        raise FrameError(f"A frame is contiguous bytes, not {type(data).__name__}.") from None


def _header(data: Bytes, facts: Any, known: core.Known | None) -> Header:
    tag, s, d, count, at = facts.quantizer, facts.s, facts.dimension, facts.scales, facts.scales_at
    scales = np.frombuffer(memoryview(data)[at : at + 4 * count], dtype="<f4").astype(np.float32)
    if tag == FLOAT32:
        return Header(tag, facts.codec, s, d, None, scales)
    traits = by_tag(tag)[0].traits
    segments = np.diff(core.offsets(data, facts, known)) if facts.segmented else None
    number = facts.number if traits.number else None
    return Header(tag, facts.codec, s, d, segments, scales, number, facts.key if traits.keyed else None)


def traits_struct(kind: Quantizer) -> Any:
    """What the core has to know of a quantizer."""
    traits, number = kind.traits, kind.traits.number
    least, highest = (number.least, number.most) if number else (0.0, 0.0)
    return core.Traits(
        traits.most, traits.linear, traits.divides, traits.keyed, traits.rotates, number is not None, least, highest,
        *traits.reach, traits.clip,
    )  # fmt: skip


def payload_size(data: Bytes) -> int:
    """Bytes of a whole frame's body: the frame without its framing."""
    return int(read_frame(data).facts.body_size)
