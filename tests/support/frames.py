"""Frames with a right checksum, whatever else is in them."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import numpy as np

import adaquantfl as aq
from adaquantfl.codecs import dense
from adaquantfl.codecs.dense_table import Census, Table
from adaquantfl.codecs.frame import Header, Known, read_frame, seal, write_frame
from adaquantfl.protocol.messages import Reply


def sealed(frame: bytes | bytearray) -> bytes:
    """The frame, whose last four bytes were no checksum, with the one that its other bytes ask for."""
    return bytes(frame[:-4]) + struct.pack("<I", zlib.crc32(frame[:-4]))


def dense_body(levels: aq.Levels, pairs: bool, lanes: int = 64, exponent: int = 16) -> bytes:
    """A body of the dense codec as it is asked for, and not as the library itself would write it."""
    census = Census.of(levels.values, levels.top)
    table, _ = (
        Table.of_pairs(census.pairs, census.largest)
        if pairs and census.pairs is not None
        else Table.of_levels(census.counts)
    )
    head = dense.head_of(table, lanes, exponent, levels.top)
    how = dense.Plan(table, lanes, exponent, head, size=0.0)
    return b"".join(bytes(part) for part in dense.body_parts(levels, how))


def framed(levels: aq.Levels, codec: int, body: bytes) -> bytes:
    """A frame of this body, with the header of these levels."""
    frame, target = write_frame(Header.of(levels, codec), len(body))
    target[:] = np.frombuffer(body, dtype=np.uint8)
    return seal(frame)


def whole(reply: Reply, known: Known) -> Reply:
    """The reply with a frame that says everything about itself."""
    return replace(reply, frame=read_frame(reply.frame, None, known).written()) if reply.frame else reply
