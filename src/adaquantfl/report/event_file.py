"""TensorBoard's event files, written without TensorBoard: scalars by name and step.

A file is a sequence of records (length, its checksum, a protocol buffer, its checksum). The buffers are an `Event` with
one `Summary` of scalars; only the fields named here are used.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path

# Field numbers of Event, Summary, Summary.Value and SessionLog.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7
_VALUE, _TAG, _SIMPLE_VALUE, _STATUS, _START = 1, 1, 2, 1, 1
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # wire types


class EventFile:
    """A new event file in `folder`. What TensorBoard has there from `first_step` on is void: it is played again."""

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        seconds, rest = divmod(time.time_ns(), 10**9)  # TensorBoard reads a folder's files in the order of their names
        self._file = (folder / f"events.out.tfevents.{seconds:010d}.{rest:09d}.adaquantfl").open("xb")
        self._write(_bytes(_FILE_VERSION, b"brain.Event:2"))
        self._write(_whole(_STEP, first_step) + _bytes(_SESSION_LOG, _whole(_STATUS, _START)))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write scalars of one step; they are there for other processes at once."""
        values = b"".join(
            _bytes(_VALUE, _bytes(_TAG, tag.encode()) + _key(_SIMPLE_VALUE, _FLOAT) + _float(value))
            for tag, value in scalars.items()
        )
        self._write(_whole(_STEP, step) + _bytes(_SUMMARY, values))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: bytes) -> None:
        self._file.write(record(_key(_WALL_TIME, _DOUBLE) + struct.pack("<d", time.time()) + event))
        self._file.flush()


def record(data: bytes) -> bytes:
    """One record: the bytes with their length and both checksums."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def masked_crc(data: bytes) -> int:
    """The rotated CRC-32C that records carry, so that a checksum of checksums is no trivial one."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32 with Castagnoli's polynomial.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _whole(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))
