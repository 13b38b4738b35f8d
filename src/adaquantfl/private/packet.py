"""The bytes of a private round: a kind, the round's session, some parts and a checksum.

ORDER      server -> client   the model and the plan; the client trains
ADVERTISE  client -> server   two public keys of this round, and a commitment to the seed of its own mask
KEYS       server -> client   those of its neighbours
SHARES     client -> server   for each neighbour, shares of two secrets, encrypted for it alone
MAILBOX    server -> client   the shares that its neighbours made for it
MASKED     client -> server   its whole numbers under all masks
SURVIVORS  server -> client   which neighbours are in the sum, and which dropped out
REVEALED   client -> server   of the former the share of one secret, of the latter the share of the other
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..codecs.varints import varint
from ..core import crc32
from ..errors import FrameError
from ..protocol.messages import Reader

MAGIC = b"AQM1"
ORDER, ADVERTISE, KEYS, SHARES, MAILBOX, MASKED, SURVIVORS, REVEALED, DIVERGED = range(9)
_HEAD = struct.Struct("<4sB16s")
_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class Packet:
    """One message. session: random bytes that all messages of a round share."""

    kind: int
    session: bytes
    parts: tuple[bytes, ...] = ()

    def pack(self) -> bytes:
        """The message as bytes."""
        sized = [piece for part in self.parts for piece in (varint(len(part)), part)]
        data = b"".join([_HEAD.pack(MAGIC, self.kind, self.session), varint(len(self.parts)), *sized])
        return data + _CRC.pack(crc32(data))

    @staticmethod
    def unpack(data: bytes) -> Packet:
        """A message from its bytes; FrameError on anything else."""
        if not speaks(data) or len(data) < _HEAD.size + 1 + _CRC.size:
            raise FrameError("This is no message of a private round of this version.")
        if _CRC.unpack(data[-_CRC.size :]) != (crc32(data[: -_CRC.size]),):
            raise FrameError("The message of a private round is damaged: its checksum does not match.")
        read = Reader(memoryview(data)[: -_CRC.size])
        _, kind, session = read.unpack(_HEAD)
        parts = tuple(read.sized() for _ in range(read.varint()))
        if not read.at_end:
            raise FrameError("The message does not end where its last part ends.")
        return Packet(kind, session, parts)

    def of(self, kind: int, session: bytes, *sizes: int | None) -> tuple[bytes, ...]:
        """The parts, where the message is of this kind and session and its parts have these sizes. FrameError."""
        if self.kind != kind or self.session != session:
            raise FrameError(f"It is message {self.kind} of a private round, expected message {kind} of this round.")
        if len(self.parts) != len(sizes) or any(
            size is not None and len(part) != size for part, size in zip(self.parts, sizes, strict=True)
        ):
            raise FrameError(f"Its parts have {[len(part) for part in self.parts]} bytes; expected {list(sizes)}.")
        return self.parts


def speaks(data: bytes) -> bool:
    """Whether these bytes are a message of a private round."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def kind_of(data: bytes) -> int:
    """The kind of a message of a private round; -1 of other bytes."""
    return data[len(MAGIC)] if speaks(data) and len(data) > len(MAGIC) else -1


def numbers(values: Iterable[int]) -> bytes:
    """Clients' numbers as bytes."""
    return np.array(list(values), dtype="<u4").tobytes()


def read_numbers(data: bytes) -> list[int]:
    """Clients' numbers from bytes; FrameError where one is there twice."""
    if len(data) % 4:
        raise FrameError("A list of clients does not end with a whole number.")
    found = [int(value) for value in np.frombuffer(data, dtype="<u4")]
    if len(set(found)) != len(found):
        raise FrameError("A list of clients names one of them twice.")
    return found


def pieces(data: bytes, count: int, size: int) -> list[bytes]:
    """Data cut into this many pieces of one size; FrameError where it has another length."""
    if len(data) != count * size:
        raise FrameError(f"Expected {count} pieces of {size} bytes, got {len(data)} bytes.")
    return [data[place : place + size] for place in range(0, len(data), size)]
