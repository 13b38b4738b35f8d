"""The bytes of the conversation: an order goes to a client, a reply comes back. docs/wire-format.md specifies them.

Nothing else in the package writes or reads these bytes. All numbers are little-endian. Every message ends with a
CRC-32 of what comes before it. The parcel in an order, which leads to the model, is `parcels.py`'s.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..codecs.frame import Bytes, Known
from ..codecs.varints import read_varint, varint
from ..core import crc32
from ..errors import FrameError
from ..quantizers.segments import scope_segments

ORDER_MAGIC, REPLY_MAGIC = b"AQO1", b"AR1"
_ORDER = struct.Struct("<4s4BIIdd2Q")
_REPLY = struct.Struct("<3sBId")  # magic, flags, order, loss
_CRC = struct.Struct("<I")
_LENGTHS = struct.Struct("<BBxxI")  # rounds taken back, target, length of the layout
LEVELS, ERROR, RESOLUTION = TARGETS = ("levels", "error", "resolution")  # what an order's s is a number of

_QUANTIZED, _FEEDBACK, _BALANCED, _EVALUATE = (1 << bit for bit in range(4))
_FRAME, _BUFFERS, _OTHERS, _DIVERGED = (1 << bit for bit in range(4))
_PARTS = (_FRAME, _BUFFERS, _OTHERS)
_WHOLE, _TENSOR = 0, 2**32 - 1  # scopes; anything between is the elements of a bucket
MOST_TAKEN_BACK = 255  # rounds that an order can name; a client remembers the last two that it played
SIGNATURE_SIZE = 16  # bytes of HMAC-SHA256 behind a reply
CODECS = ("auto", "fixed", "sparse", "dense")  # by their number in an order; others go by the number 255 and a name


@dataclass(frozen=True, slots=True)  # there may be thousands in a round
class Order:
    """What a client is asked to do in a round.

    Attributes:
        round: of the server, counted from 0.
        s: the number of levels, which need not be whole; None is float32.
        eta: the learning rate.
        key: of this client's random stream in this round.
        quantizer: its tag in a frame, which also names the norm.
        target: what s is a number of: "levels"; the largest "error" that the client's levels may have; or the
            "resolution" from which the client takes its levels.
        taken_back: earlier rounds of this client that do not count.
        layout: of the model, where the client may not know it.
        parcel: what leads to the model.
        evaluate: the model is only looked at.
    """

    round: int
    s: float | None
    eta: float
    key: int
    quantizer: int = 0
    codec: str = "auto"
    scope: str | int = "tensor"
    balanced: bool = False
    feedback: bool = False
    target: str = LEVELS
    taken_back: tuple[int, ...] = ()
    layout: str = ""
    parcel: bytes | memoryview = b""
    evaluate: bool = False

    def token(self, digest: bytes) -> int:
        """Which order it is, of all clients, rounds and models. A reply names it, so that it cannot answer another one.

        digest: of the model that is trained. A restored server may play a round again from another model.
        """
        return (self.key ^ int.from_bytes(digest[:4], "little")) & 0xFFFFFFFF

    def segments(self, lengths: tuple[int, ...]) -> npt.NDArray[np.int64] | None:
        """The runs of elements with a norm of their own, for tensors of these lengths; None is one norm for all."""
        return scope_segments(self.scope, lengths)

    def known(self, lengths: tuple[int, ...]) -> Known:
        """What is known of the frame that answers it, for tensors of these lengths."""
        return Known(self.quantizer, sum(lengths), self.segments(lengths), self.key)

    @property
    def size(self) -> int:
        """Bytes of the order, which need not be put together for that."""
        return len(self._head()) + len(self.parcel)

    def pack(self) -> bytes:
        """The order as bytes."""
        return b"".join((self._head(), self.parcel))

    def _head(self) -> bytes:
        """All but the parcel."""
        flags = _QUANTIZED * (self.s is not None) | _FEEDBACK * self.feedback
        flags |= _BALANCED * self.balanced | _EVALUATE * self.evaluate
        scope = self.scope if isinstance(self.scope, int) else {"whole": _WHOLE, "tensor": _TENSOR}[self.scope]
        known = self.codec in CODECS
        codec = CODECS.index(self.codec) if known else 255
        names = b"" if known else self.codec.encode()
        layout = self.layout.encode()
        head = _ORDER.pack(
            ORDER_MAGIC, flags, self.quantizer, codec, len(names), self.round, scope, self.s or 0.0, self.eta,
            self.key, len(self.parcel),
        )  # fmt: skip
        head += _LENGTHS.pack(len(self.taken_back), TARGETS.index(self.target), len(layout))
        head += np.array(self.taken_back, dtype="<u4").tobytes() + names + layout
        return head + _CRC.pack(crc32(head))

    @staticmethod
    def unpack(data: bytes) -> Order:
        """An order from its bytes; FrameError on anything else. The parcel is checked when it is opened."""
        if len(data) < _ORDER.size + _LENGTHS.size + _CRC.size or not data.startswith(ORDER_MAGIC):
            raise FrameError("This is no order of this version: it is too short or begins otherwise.")
        _, flags, quantizer, codec, named, round, scope, s, eta, key, parcel = _ORDER.unpack_from(data)
        back, target, laid = _LENGTHS.unpack_from(data, _ORDER.size)
        read = Reader(data, _ORDER.size + _LENGTHS.size)
        taken_back = np.frombuffer(read.take(4 * back), "<u4")
        texts = [read.take(size) for size in (named, laid)]
        (crc,) = read.unpack(_CRC)
        if crc != crc32(data[: read.position - _CRC.size]) or len(data) - read.position != parcel:
            raise FrameError("The order is damaged: its checksum or its length does not match.")
        if codec != 255 and codec >= len(CODECS):
            raise FrameError(f"The order names codec {codec}, which this version does not know.")
        if flags >= 2 * _EVALUATE:
            raise FrameError(f"The order has the flags {flags:#04x}, which this version does not know.")
        if target >= len(TARGETS):
            raise FrameError(f"The order names target {target}, which this version does not know.")
        if not np.isfinite([s, eta]).all():
            raise FrameError(f"The order has s = {s} and eta = {eta}: both must be finite.")
        try:
            name, layout = (text.decode() for text in texts)
        except UnicodeDecodeError as error:
            raise FrameError(f"The order has a name that is not text: {error}.") from None
        return Order(
            round, (int(s) if s == int(s) else s) if flags & _QUANTIZED else None, eta, key, quantizer,
            name if codec == 255 else CODECS[codec],
            {_WHOLE: "whole", _TENSOR: "tensor"}.get(scope, scope),
            bool(flags & _BALANCED), bool(flags & _FEEDBACK), TARGETS[target],
            tuple(map(int, taken_back)), layout, memoryview(data)[read.position :], bool(flags & _EVALUATE),
        )  # fmt: skip


@dataclass(frozen=True)
class Reply:
    """A client's answer. frame: the update; buffers: a float32 frame; others: bytes as they are.

    order: which order it answers, `Order.token`. The frame leaves out what its receiver knows from that order. Where
    training diverged, there is no frame and the loss is NaN.
    """

    round: int
    loss: float
    examples: int
    frame: bytes = b""
    buffers: bytes = b""
    others: bytes = b""
    order: int = 0

    @property
    def diverged(self) -> bool:
        return not np.isfinite(self.loss)

    def pack(self) -> bytes:
        """The reply as bytes."""
        parts = (self.frame, self.buffers, self.others)
        flags = sum(flag for flag, part in zip(_PARTS, parts, strict=True) if part) | _DIVERGED * self.diverged
        pieces = [_REPLY.pack(REPLY_MAGIC, flags, self.order, self.loss), varint(self.round), varint(self.examples)]
        for part in parts:
            pieces += [varint(len(part)), part] if part else []
        data = b"".join(pieces)
        return data + _CRC.pack(crc32(data))

    @staticmethod
    def unpack(data: bytes) -> Reply:
        """A reply from its bytes; FrameError on anything else."""
        if len(data) < _REPLY.size + 2 + _CRC.size or not data.startswith(REPLY_MAGIC):
            raise FrameError("This is no reply of this version: it is too short or begins otherwise.")
        body, (crc,) = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])
        if crc32(body) != crc:
            raise FrameError("The reply is damaged: its checksum does not match.")
        read = Reader(body)
        _, flags, order, loss = read.unpack(_REPLY)
        round, examples = read.varint(), read.varint()
        frame, buffers, others = (read.sized() if flags & flag else b"" for flag in _PARTS)
        if not read.at_end or flags >= 2 * _DIVERGED:
            raise FrameError("The reply does not end where its last part ends.")
        if bool(flags & _DIVERGED) == bool(np.isfinite(loss)):
            raise FrameError("The reply's loss and its flags do not agree.")
        return Reply(round, loss, examples, frame, buffers, others, order)


def sign(reply: bytes, secret: bytes) -> bytes:
    """A reply with its signature, where client and server share a secret."""
    return reply + _signature(reply, secret)


def signed(data: bytes, secret: bytes) -> bytes:
    """The reply of a signed message; FrameError where the secret was not used for it."""
    reply, signature = data[:-SIGNATURE_SIZE], data[-SIGNATURE_SIZE:]
    if not hmac.compare_digest(_signature(reply, secret), signature):
        raise FrameError("It is not signed with this client's secret.")
    return reply


def _signature(reply: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, reply, "sha256")[:SIGNATURE_SIZE]


class Reader:
    """Reads a message from front to back; FrameError where it ends too early."""

    def __init__(self, data: Bytes, position: int = 0) -> None:
        self.data, self.position = memoryview(data), position

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise FrameError("Truncated: a part of the message is longer than the rest of it.")
        return bytes(self.data[start : self.position])

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take(form.size))

    def varint(self) -> int:
        number, self.position = read_varint(self.data, self.position)
        return number

    def sized(self) -> bytes:
        """A part with its length before it."""
        return self.take(self.varint())

    @property
    def at_end(self) -> bool:
        return self.position == len(self.data)
