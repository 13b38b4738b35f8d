"""The bytes between a gloo server and its clients: a header of fixed length, then as many bytes as it announces.

The bytes after a call are an order, or a client's state. The bytes after an answer are a reply, a state, or a reason.
Nothing that is received is ever executed. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from ...errors import EngineError
from ..calls import Call, Failure, Trained

_CALL = struct.Struct("<IBQ")  # number, kind, bytes that follow
_ANSWER = struct.Struct("<IBQdd")  # number, kind, bytes that follow, value or training seconds, encoding seconds
CALL_BYTES, ANSWER_BYTES = _CALL.size, _ANSWER.size

STATE, RESTORE = "state", "restore"  # ask for what a client keeps from round to round; give it back
END = "end"  # the run is over; it is not answered
_CALLS = ("train", "loss", STATE, RESTORE, END)
_TRAINED, _STATE, _NUMBER, _FAILURE, _MODEL_NEEDED = range(5)
_EXPECTED = {"train": _TRAINED, STATE: _STATE}  # every other call is answered with a number
_LONGEST_REASON_BYTES = 4_000


class AnswerError(EngineError):
    """A client sent something that is no answer to its call."""


@dataclass(frozen=True)
class CallHeader:
    """A call as a client reads it; `size` bytes follow."""

    number: int
    name: str
    size: int


@dataclass(frozen=True)
class AnswerHeader:
    """The header of an answer, checked; `size` bytes follow."""

    kind: int
    size: int
    numbers: tuple[float, float]

    def answer(self, body: bytes) -> Any:
        """The answer that the header and the bytes after it make: Trained, Failure, a number, or a state's bytes."""
        if self.kind in (_FAILURE, _MODEL_NEEDED):
            text = body.decode(errors="replace")
            reason = "".join(c if c.isprintable() else " " for c in text)  # it may be printed on a terminal
            return Failure(reason, self.kind == _MODEL_NEEDED)
        if self.kind == _TRAINED:
            return Trained(body, *self.numbers)
        return body if self.kind == _STATE else self.numbers[0]


def pack_call(number: int, call: Call) -> tuple[bytes, bytes]:
    """The header of a call, and the bytes that follow it."""
    return _CALL.pack(number, _CALLS.index(call.name), len(call.order)), call.order


def unpack_call(header: bytes) -> CallHeader:
    """What the server wants."""
    number, kind, size = _CALL.unpack(header)
    if kind >= len(_CALLS):
        raise EngineError(f"The server sent a call of kind {kind}, which this version does not know.")
    return CallHeader(number, _CALLS[kind], size)


def pack_answer(number: int, answer: Any) -> tuple[bytes, bytes]:
    """The header of an answer, and the bytes that follow it."""
    if isinstance(answer, Failure):
        text = answer.reason.encode()[:_LONGEST_REASON_BYTES]
        return _ANSWER.pack(number, _MODEL_NEEDED if answer.model_needed else _FAILURE, len(text), 0.0, 0.0), text
    if isinstance(answer, Trained):
        seconds = answer.train_seconds, answer.encode_seconds
        return _ANSWER.pack(number, _TRAINED, len(answer.reply), *seconds), answer.reply
    if isinstance(answer, bytes):
        return _ANSWER.pack(number, _STATE, len(answer), 0.0, 0.0), answer
    return _ANSWER.pack(number, _NUMBER, 0, answer, 0.0), b""


def unpack_answer(header: bytes, number: int, call: Call, most_bytes: int) -> AnswerHeader:
    """What a client answers to call `number`; AnswerError on anything else. most_bytes: of a reply or a state."""
    answered, kind, size, *numbers = _ANSWER.unpack(header)
    expected = _EXPECTED.get(call.name, _NUMBER)
    if answered != number or kind not in (expected, _FAILURE, _MODEL_NEEDED):
        raise AnswerError(f"it answered call {answered} with kind {kind}, but was asked call {number}, {call.name!r}.")
    most = {_NUMBER: 0, _FAILURE: _LONGEST_REASON_BYTES, _MODEL_NEEDED: _LONGEST_REASON_BYTES}.get(kind, most_bytes)
    if size > most:
        raise AnswerError(f"it announced {size:,} bytes, more than an update of this model can have.")
    return AnswerHeader(kind, size, (numbers[0], numbers[1]))
