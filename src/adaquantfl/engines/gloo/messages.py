"""What a server and its clients say to each other, as bytes: fixed headers, exact lengths, nothing that could run.

A call is one header, and after it what the client does not have yet: the model (float32, little-endian, parameters then
buffers), or a parcel that leads to it. An answer is one header, and as many bytes as it announces.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from ...errors import EngineError
from ...protocol.messages import Plan, Reply
from ..calls import SHARED, Call, Failure

_CALL = struct.Struct("<IBIIddIQQQ")  # number, kind, two arguments, eta, s, the model's round, sizes of what follows
_ANSWER = struct.Struct("<IBQQHddd")  # number, kind, bytes of what follows, loss, seconds to train and encode
CALL_BYTES, ANSWER_BYTES = _CALL.size, _ANSWER.size

END, PING = "end", "ping"  # the run is over; the server is still there
_KINDS = ("train", "loss", "losses", "correct", END, PING, "test_losses")
_REPLY, _LOSS, _COUNT, _FAILURE, _REFUSAL = range(5)
_EXPECTED = {"train": _REPLY, "loss": _LOSS, "losses": _LOSS, "correct": _COUNT, "test_losses": _LOSS}
_LONGEST_REASON = 4_000
_BYTES_AN_ELEMENT = 64  # of an update, more than any codec and scope takes


class AnswerError(EngineError):
    """A client answered something that is no answer to its call."""


@dataclass(frozen=True)
class Follows:
    """What follows a call's header: so many parameters and buffers, or so many bytes of a parcel; or nothing.

    round: of the model that the call is about.
    """

    round: int = 0
    weights: int = 0
    buffers: int = 0
    parcel: int = 0


@dataclass(frozen=True)
class CallHeader:
    """A call as a client reads it. Where nothing follows, it is about the model that the client has."""

    number: int
    call: Call
    follows: Follows


@dataclass(frozen=True)
class Refusal:
    """A client's answer to a parcel that it cannot use: it asks for the model itself."""

    reason: str


NOTHING = Follows()


def encode_call(number: int, call: Call, follows: Follows = NOTHING) -> bytes:
    """The header of a call."""
    name, arguments = call
    first = second = 0
    eta = s = 0.0
    if name == "train":
        plan = arguments[1]
        first, second, eta, s = plan.round, plan.survey, plan.eta, plan.s or 0.0
    elif name in SHARED:
        first, second = arguments
    sizes = follows.weights, follows.buffers, follows.parcel
    return _CALL.pack(number, _KINDS.index(name), first, second, eta, s, follows.round, *sizes)


def decode_call(header: bytes, client: int) -> CallHeader:
    """What the server wants of this client."""
    number, kind, first, second, eta, s, *follows = _CALL.unpack(header)
    if kind >= len(_KINDS):
        raise EngineError(f"The server sent a call of kind {kind}, which this version does not know.")
    arguments: dict[str, tuple[Any, ...]] = {
        "train": (client, Plan(first, _levels(s), eta, bool(second))),
        "loss": (client,),
        **dict.fromkeys(SHARED, (first, second)),
    }
    name = _KINDS[kind]
    return CallHeader(number, (name, arguments.get(name, ())), Follows(*follows))


def _levels(s: float) -> float | None:
    """A plan's s: 0 is none, and whole numbers are whole."""
    return int(s) if s and s == int(s) else s or None


def encode_answer(number: int, call: Call, answer: Any) -> tuple[bytes, bytes]:
    """An answer's header and the bytes that follow it."""
    if isinstance(answer, Failure | Refusal):
        text = answer.reason.encode()[:_LONGEST_REASON]
        kind = _FAILURE if isinstance(answer, Failure) else _REFUSAL
        return _ANSWER.pack(number, kind, len(text), 0, 0, 0.0, 0.0, 0.0), text
    if isinstance(answer, Reply):
        parts = answer.frame, answer.buffers, answer.survey
        seconds = answer.train_seconds, answer.encode_seconds
        return _ANSWER.pack(number, _REPLY, *map(len, parts), answer.round_loss, *seconds), b"".join(parts)
    if _EXPECTED[call[0]] == _LOSS:
        return _ANSWER.pack(number, _LOSS, 0, 0, 0, answer, 0.0, 0.0), b""
    return _ANSWER.pack(number, _COUNT, answer, 0, 0, 0.0, 0.0, 0.0), b""


@dataclass(frozen=True)
class AnswerHeader:
    """The header of an answer, checked: `size` bytes are to follow."""

    call: Call
    kind: int
    parts: tuple[int, int, int]
    numbers: tuple[float, float, float]

    @property
    def size(self) -> int:
        return sum(self.parts) if self.kind in (_REPLY, _FAILURE, _REFUSAL) else 0

    def answer(self, client: int, body: bytes) -> Any:
        """The answer that the header and the bytes after it make."""
        if self.kind in (_FAILURE, _REFUSAL):
            text = body.decode(errors="replace")
            reason = "".join(c if c.isprintable() else " " for c in text)  # it may end on a terminal
            return Failure(reason) if self.kind == _FAILURE else Refusal(reason)
        if self.kind == _REPLY:
            frame, buffers, _ = self.parts
            survey = body[frame + buffers :]
            return Reply(client, body[:frame], body[frame : frame + buffers], *self.numbers, survey)
        return self.numbers[0] if self.kind == _LOSS else self.parts[0]


def decode_answer(header: bytes, number: int, call: Call, elements: int) -> AnswerHeader:
    """What a client says to call `number`. elements: of the model, parameters and buffers."""
    answered, kind, first, second, third, *numbers = _ANSWER.unpack(header)
    if answered != number or kind not in (_EXPECTED[call[0]], _FAILURE, _REFUSAL):
        raise AnswerError(f"it answered call {answered} with kind {kind}, but was asked call {number}, {call[0]!r}.")
    found = AnswerHeader(call, kind, (first, second, third), tuple(numbers))
    most = 2**20 + _BYTES_AN_ELEMENT * elements if kind == _REPLY else _LONGEST_REASON
    if found.size > most:
        raise AnswerError(f"it announced {found.size:,} bytes, more than an update of this model can have.")
    if kind == _COUNT and first > call[1][1] - call[1][0]:
        raise AnswerError(f"it counted {first:,} right answers to {call[1][1] - call[1][0]:,} test samples.")
    return found
