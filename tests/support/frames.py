"""Frames with a right checksum, whatever else is in them."""

from __future__ import annotations

import struct
import zlib

import numpy as np

import adaquantfl as aq
from adaquantfl.codecs import dense_wide
from adaquantfl.codecs.frame import Header, seal, write_frame


def sealed(frame: bytes | bytearray) -> bytes:
    """The frame, whose last four bytes were no checksum, with the one that its other bytes ask for."""
    return bytes(frame[:-4]) + struct.pack("<I", zlib.crc32(frame[:-4]))


def wide_body(levels: aq.Levels, pairs: bool, exponent: int = 16) -> bytes:
    """The wide body of the dense codec, which the library itself writes only for many elements."""
    census = dense_wide.Census.of(levels.values, levels.top)
    if pairs:
        assert census.pairs is not None
        table, _ = dense_wide.SymbolTable.of_pairs(census.pairs, census.largest)
    else:
        found = dense_wide.SymbolTable.of_levels(census.counts)
        assert found
        table = found[0]
    head = bytes([table.pairs, exponent]) + table.to_bytes(levels.top)
    parts = dense_wide.encode(levels.values, dense_wide.Plan(table, exponent, head, 0.0))
    return b"".join(bytes(part) for part in parts)


def framed(levels: aq.Levels, codec: int, body: bytes) -> bytes:
    """A frame of this body, with the header of these levels."""
    frame, target = write_frame(Header.of(levels, codec), len(body))
    target[:] = np.frombuffer(body, dtype=np.uint8)
    return seal(frame)
