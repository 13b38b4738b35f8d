"""A round's replies: updates go to the server, and come back as plain arrays for the wrapped strategy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Error, Message
from flwr.app.message.message import make_message
from flwr.common.constant import ErrorCode

from ..errors import AdaQuantError, Refused
from ..protocol.arrays import AnyArray
from ..protocol.limits import NormLimit
from ..protocol.server import Server
from .records import REPLY, array_record, arrays_in, bytes_in, put, size_of

_NORM = "its update has norm"  # how the reasons begin that are about `max_update_norm`


@dataclass
class Received:
    """The replies as the wrapped strategy sees them. heard: how many updates are in. refused: node -> why."""

    heard: int = 0
    plain: int = 0
    wire_bytes: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    _places: list[tuple[float, Message]] = field(default_factory=list)

    @property
    def messages(self) -> list[Message]:
        """In the order of partitions, so that sums do not depend on who was first; those without one come last."""
        return [message for _, message in sorted(self._places, key=lambda place: place[0])]

    @property
    def metrics(self) -> dict[str, Any]:
        norms = sum(reason.startswith(_NORM) for reason in self.refused.values())
        return {
            "aq_wire_bytes": self.wire_bytes,
            "aq_quantized": self.heard,
            "aq_plain": self.plain,
            "aq_refused": len(self.refused),
            "aq_refused_frame": len(self.refused) - norms,
            "aq_refused_norm": norms,
        }

    def loss(self, loss_keys: Sequence[str], weight_key: str) -> float | None:
        """f(w_k): the clients' training losses, weighted as the wrapped strategy weighs them. A loss that no rule can
        use (NaN, infinite, not above 0) is left out, so that one client cannot stop the run with it."""
        pairs = []
        for message in self.messages:
            for metrics in message.content.metric_records.values() if message.has_content() else ():
                loss = next((positive(metrics[key]) for key in loss_keys if key in metrics), None)
                weight = positive(metrics.get(weight_key, 1))
                if loss and weight:
                    pairs.append((weight, loss))
        return positive(sum(w * loss for w, loss in pairs) / sum(w for w, _ in pairs)) if pairs else None

    def take(self, message: Message, partition: object = None) -> None:
        """A reply for the wrapped strategy."""
        self._places.append((partition if isinstance(partition, int) else math.inf, message))

    def refuse(self, reply: Message, reason: str) -> None:
        """Note why a reply is refused; the wrapped strategy gets an error in its place."""
        self.refused[reply.metadata.src_node_id] = reason
        error = Error(ErrorCode.MOD_FAILED_PRECONDITION, f"AdaQuantStrategy refused its reply: {reason}")
        self.take(make_message(metadata=reply.metadata, error=error))


def receive(server: Server, replies: Sequence[Message], clients: Mapping[int, int]) -> Received:
    """Hand a round's replies to the server, and back to plain arrays. clients: node -> client."""
    received, packed, plain = Received(), dict[int, tuple[Message, str]](), list[Message]()
    for reply in replies:
        if reply.has_error():
            received.take(reply)
            continue
        received.wire_bytes += size_of(reply.content)
        names = [name for name, record in reply.content.config_records.items() if REPLY in record]
        if not names:
            plain.append(reply)
            continue
        client = clients.get(reply.metadata.src_node_id, -1)
        try:
            data = bytes_in(reply.content.config_records[names[0]], REPLY)
            if len(names) > 1 or reply.content.array_records:
                raise Refused("its message was refused. It has more than one update, or arrays next to it.")
            server.receive(client, data)
            packed[client] = reply, names[0]
        except (TypeError, Refused) as error:
            received.refuse(reply, str(error))
    too_large = _too_large(server, plain)
    for number, reply in enumerate(plain):
        if number in too_large:
            received.refuse(reply, too_large[number])
        else:
            received.plain += 1
            received.take(reply)
    weights: Mapping[int, Any] = server.heard()
    for client, (reply, name) in packed.items():
        if client not in weights:
            received.refuse(reply, server.missing[client])
        elif infinite := [key for key, array in weights[client].items() if not _finite(array)]:
            kind = weights[client][infinite[0]].dtype
            received.refuse(reply, f"Array {infinite[0]!r} is beyond the range of {kind} with its update.")
        else:
            partition = reply.content.config_records[name].get("partition")
            put(reply, name, array_record(weights[client]))
            received.heard += 1
            received.take(reply, partition)
    return received


def _too_large(server: Server, plain: Sequence[Message]) -> dict[int, str]:
    """Which replies with plain weights are beyond `max_update_norm`, and why. The median is that of all replies."""
    limit, layout = server.stages.limit, server.current.layout
    if not plain or limit == NormLimit():
        return {}
    norms = {-1 - number: norm for number, norm in enumerate(server.norms.values())}
    for number, reply in enumerate(plain):
        norms[number] = math.inf  # where it cannot be told
        with suppress(AdaQuantError, ValueError):
            (record,) = reply.content.array_records.values()
            norm = float(np.linalg.norm(layout.split(arrays_in(record)).weights - server.model.weights))
            norms[number] = norm if math.isfinite(norm) else math.inf
    return {number: reason for number, reason in limit.refused(norms).items() if number >= 0}


def positive(value: object) -> float | None:
    """A finite number above 0, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _finite(array: AnyArray) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
