"""TensorBoard's event files, written without TensorBoard: scalars by name and step.

A file is a sequence of records (length, its checksum, a protocol buffer, its checksum). The buffers are an `Event` with
one `Summary` of scalars; only the fields named here are used.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

# Field numbers of Event, Summary, Summary.Value and SessionLog.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7
_VALUE, _TAG, _SIMPLE_VALUE, _STATUS, _START = 1, 1, 2, 1, 1
_VARINT, _BYTES, _WIRE_TYPES = 0, 2, {"d": 1, "f": 5}


class EventFile:
    """A new event file in `folder`. TensorBoard drops what it has there from `first_step` on: it is played again."""

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        seconds, rest = divmod(time.time_ns(), 10**9)  # TensorBoard reads a folder's files in the order of their names
        self._file = (folder / f"events.out.tfevents.{seconds:010d}.{rest:09d}.adaquantfl").open("xb")
        self._write(_field(_FILE_VERSION, b"brain.Event:2"))
        self._write(_field(_STEP, first_step) + _field(_SESSION_LOG, _field(_STATUS, _START)))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write the scalars of one step; other processes can read them at once."""
        values = (_field(_TAG, tag.encode()) + _field(_SIMPLE_VALUE, value, "f") for tag, value in scalars.items())
        self._write(_field(_STEP, step) + _field(_SUMMARY, b"".join(_field(_VALUE, value) for value in values)))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: bytes) -> None:
        """One record: the event's bytes with their length and both checksums."""
        data = _field(_WALL_TIME, time.time(), "d") + event
        length = struct.pack("<Q", len(data))
        checks = [struct.pack("<I", masked_crc(part)) for part in (length, data)]
        self._file.write(length + checks[0] + data + checks[1])
        self._file.flush()


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


def _field(number: int, value: bytes | float, form: str = "") -> bytes:
    """A field of a protocol buffer: bytes with their length, a float ("f", "d"), or a whole number."""
    if isinstance(value, bytes):
        return _varint(number << 3 | _BYTES) + _varint(len(value)) + value
    if form:
        with np.errstate(over="ignore"):  # a float32 that is too large is infinite
            return _varint(number << 3 | _WIRE_TYPES[form]) + np.array(value, f"<{form}").tobytes()
    return _varint(number << 3 | _VARINT) + _varint(int(value))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
