"""The server's half of a round: replies come in, updates become arrays again, what cannot be used is refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message
from flwr.app.message.message import make_message
from flwr.common.constant import ErrorCode

from ..errors import FrameError
from ..protocol.limits import NormLimit
from .plan import Plan
from .update import NAME, Model, change, is_packed, unpack


@dataclass(frozen=True)
class Refusal:
    """A reply that was not used. kind: "frame" for one that is malformed, "norm" for one beyond `max_update_norm`."""

    node: int
    kind: str
    reason: str


@dataclass(frozen=True)
class Answer:
    """A reply as the wrapped strategy sees it. client is None where none of the arrays was quantized."""

    message: Message
    client: int | None = None
    norm: float = 0.0
    payload_bytes: int = 0


@dataclass
class Received:
    """A round's replies. wire_bytes: all records of all of them, as Flower counts bytes."""

    answers: list[Answer] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    wire_bytes: int = 0

    @property
    def used(self) -> list[Answer]:
        return [answer for answer in self.answers if not answer.message.has_error()]

    @property
    def quantized(self) -> int:
        return sum(answer.client is not None for answer in self.used)

    @property
    def payload_bytes(self) -> int:
        """Bodies of the frames that were used, added up over clients."""
        return sum(answer.payload_bytes for answer in self.used)

    @property
    def messages(self) -> list[Message]:
        """In client order, so that sums do not depend on who was first; those without a client number come last."""

        def place(answer: Answer) -> float:
            return math.inf if answer.client is None else answer.client

        return [answer.message for answer in sorted(self.answers, key=place)]

    def refuse(self, reply: Message, kind: str, reason: str) -> Answer:
        """Note why a reply is refused; the wrapped strategy gets an error in its place."""
        self.refused.append(Refusal(reply.metadata.src_node_id, kind, reason))
        error = Error(ErrorCode.MOD_FAILED_PRECONDITION, f"AdaQuantStrategy refused its reply: {reason}")
        return Answer(make_message(metadata=reply.metadata, error=error))


def receive(replies: Iterable[Message], models: Mapping[int, Model], plan: Plan, limit: NormLimit) -> Received:
    """Open the replies of a round. models: what each node was sent."""
    received = Received()
    for reply in replies:
        if reply.has_error():
            received.answers.append(Answer(reply))
            continue
        received.wire_bytes += sum(record.count_bytes() for record in reply.content.values())
        try:
            answer = _open(reply, models, plan, limited=limit != NormLimit())
        except FrameError as error:
            answer = received.refuse(reply, "frame", str(error))
        received.answers.append(answer)
    norms = {i: answer.norm for i, answer in enumerate(received.answers) if not answer.message.has_error()}
    for i, reason in limit.refused(norms).items():
        received.answers[i] = received.refuse(received.answers[i].message, "norm", reason)
    return received


def _open(reply: Message, models: Mapping[int, Model], plan: Plan, limited: bool) -> Answer:
    """The reply with plain arrays. Its norm counts also what a client sends as it is: a limit is for everybody."""
    records = reply.content.array_records
    packed = [name for name, record in records.items() if is_packed(record)]
    model = models.get(reply.metadata.src_node_id)
    if len(packed) > 1 or (packed and model is None):
        raise FrameError("It has more than one update, or was not asked for one in this round.")
    plain_norm = math.hypot(*(_norm(record, model, plan) for record in records.values())) if limited and model else 0.0
    if not packed or model is None:
        return Answer(reply, norm=plain_norm)
    opened = unpack(records[packed[0]], model, plan)
    reply.content[packed[0]] = ArrayRecord(opened.arrays)
    return Answer(reply, opened.client, math.hypot(opened.norm, plain_norm), opened.payload_bytes)


def _norm(record: Mapping[str, Array], model: Model, plan: Plan) -> float:
    """l2 norm of the change of the arrays that travelled as they are; infinite where it is not a number."""
    squares = 0.0
    for name, array in record.items():
        try:
            update = None if name == NAME else change(name, array, model, plan)
        except (ValueError, EOFError, OSError, MemoryError) as error:  # all that np.load makes of strange bytes
            raise FrameError(f"Its array {name!r} cannot be read: {error}") from error
        if update is not None:
            squares += float(np.square(update.values, dtype=np.float64).sum())
    return math.sqrt(squares) if math.isfinite(squares) else math.inf
