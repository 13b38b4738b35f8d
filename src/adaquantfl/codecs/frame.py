"""The frame: a header, a body written by one codec, and a CRC-32 over both.

docs/wire-format.md is the specification. A change of these bytes is a new VERSION. With a `Known`, what the receiver
knows is left out, and the message around the frame has the checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..memory import LARGE, as_bytes, empty_bytes
from .checksum import crc32
from .header import FLOAT32, HEADER_SIZE, UNIFORM, Header, Known, body_size_in, is_whole, pack, read_short, read_whole

__all__ = ["CRC_SIZE", "FLOAT32", "HEADER_SIZE", "TILE", "UNIFORM", "Bytes", "Frame", "Header", "Known", "Part"]

TILE = 65_536  # elements that are decoded and added at a time; codecs cut their bodies at multiples of it
_CRC = struct.Struct("<I")
CRC_SIZE = _CRC.size

Bytes = bytes | bytearray | memoryview
Part = bytes | npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Frame:
    """A frame taken apart; `body` is a view of the received bytes."""

    header: Header
    body: npt.NDArray[np.uint8]
    size: int

    def written(self, known: Known | None = None) -> bytes:
        """The frame's bytes for a receiver that knows this; None: for anybody."""
        return framed(self.header, [self.body.tobytes()], known)


def write_frame(
    header: Header, body_size: int, known: Known | None = None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Allocate a frame and write its header. Returns the frame and the view of it that the codec fills."""
    head = pack(header, body_size, known)
    frame = empty_bytes(len(head) + body_size + _CRC.size * is_whole(head))
    frame[: len(head)] = np.frombuffer(head, dtype=np.uint8)
    return frame, frame[len(head) : len(head) + body_size]


def seal(frame: npt.NDArray[np.uint8]) -> bytes:
    """Write the checksum behind a filled frame and return it as bytes. Where memory is used again, they are a view."""
    if is_whole(frame):
        frame[-_CRC.size :] = np.frombuffer(_CRC.pack(crc32(frame[: -_CRC.size].data)), dtype=np.uint8)
    return as_bytes(frame)


def framed(header: Header, parts: Sequence[Part], known: Known | None = None) -> bytes:
    """A frame whose body is these parts, one after the other."""
    size = sum(map(len, parts))
    if size < LARGE:
        head = pack(header, size, known)
        whole = b"".join((head, *cast(Sequence[bytes], parts)))
        return whole + _CRC.pack(crc32(whole)) if is_whole(head) else whole
    frame, body = write_frame(header, size, known)
    place = 0
    for part in filter(len, parts):
        body[place : place + len(part)] = np.frombuffer(part, dtype=np.uint8)
        place += len(part)
    return seal(frame)


def read_frame(data: Bytes, dimension: int | None = None, known: Known | None = None) -> Frame:
    """Check a frame and take it apart; FrameError says why it is refused. Allocates nothing of the frame's size.

    known: what the sender knew that this receiver knows; the frame may have left it out.
    """
    try:
        view = memoryview(data).cast("B")
    except TypeError:
        raise FrameError(f"A frame is contiguous bytes, not {type(data).__name__}.") from None
    if known is not None and not is_whole(view):
        header, start = read_short(view, known)
        return Frame(header, np.frombuffer(view[start:], dtype=np.uint8), len(view))
    if len(view) < HEADER_SIZE + _CRC.size:
        raise FrameError(
            f"Truncated: {len(view)} bytes, but a frame has at least {HEADER_SIZE + _CRC.size}. "
            "Ask the sender for the whole message."
        )
    body_size = body_size_in(view)
    if body_size > len(view):  # before the checksum, so that truncation is called by its name
        raise FrameError(f"Truncated: the body should have {body_size:,} bytes, the whole message has {len(view):,}.")
    (crc,) = _CRC.unpack_from(view, len(view) - _CRC.size)
    if crc32(view[: -_CRC.size]) != crc:
        raise FrameError("The checksum does not match: the frame was truncated or altered on its way. Send it again.")
    header, start = read_whole(view[: -_CRC.size], dimension)
    if start + body_size + _CRC.size != len(view):
        raise FrameError(
            f"The frame has {len(view):,} bytes; its header asks for {start + body_size + _CRC.size:,}. "
            "Send exactly one frame per message."
        )
    return Frame(header, np.frombuffer(view[start : start + body_size], dtype=np.uint8), len(view))


def payload_size(data: Bytes) -> int:
    """Bytes of a whole frame's body, as its header says: the frame without its framing."""
    return body_size_in(memoryview(data))
