"""A round's replies: updates go to the server, and come back as plain arrays for the wrapped strategy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import numpy as np
from flwr.app import Error, Message
from flwr.app.message.message import make_message

from ..errors import AdaQuantError, ConfigError, Refused
from ..protocol.arrays import AnyArray
from ..protocol.bfloat16 import widened
from ..protocol.limits import ExamplesLimit
from ..protocol.server import Server
from .form import Form
from .losses import loss_in, numbers_in
from .privacy import clipped
from .records import ERROR, MOD_FAILED, NOTE, UNMEASURED, array_record, arrays_in, put, size_of, update_in, without_ours

_NORM = "its update has norm"  # how the reasons begin that are about `max_update_norm`


@dataclass
class Received:
    """The replies as the wrapped strategy sees them.

    heard: how many updates are in. plain: node -> why it sent plain weights, where it said so. clipped: how many
    clients' arrays differential privacy made shorter. errors: of the quantizers, as the clients measured them. refused,
    failed: node -> why; failed ones sent an error. unmeasured: how many clients have no
    probe. capped: node -> its weight, which was above `max_examples`.
    """

    heard: int = 0
    plain: dict[int, str] = field(default_factory=dict)
    clipped: int = 0
    errors: list[float] = field(default_factory=list)
    wire_bytes: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    capped: dict[int, float] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    unmeasured: int = 0
    _places: list[tuple[float, Message]] = field(default_factory=list)

    @property
    def usable(self) -> int:
        """How many replies the wrapped strategy can aggregate."""
        return self.heard + len(self.plain)

    @property
    def answered(self) -> int:
        """How many clients sent more than an error."""
        return self.usable + len(self.refused)

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
            "aq_plain": len(self.plain),
            "aq_failed": len(self.failed),
            "aq_clipped": self.clipped,
            "aq_refused": len(self.refused),
            "aq_refused_frame": len(self.refused) - norms,
            "aq_refused_norm": norms,
            "aq_capped": len(self.capped),
            **({"aq_error": fmean(self.errors)} if self.errors else {}),
        }

    def loss(self, loss_keys: Sequence[str], weight_key: str) -> float | None:
        """f(w_k): the clients' training losses, weighted as the wrapped strategy weighs them. A loss that no rule can
        use (NaN, infinite, not above 0) is left out, so that one client cannot stop the run with it."""
        pairs = []
        for message in self.messages:
            numbers = numbers_in(message.content) if message.has_content() else {}
            loss, weight = positive(loss_in(numbers, loss_keys)), positive(numbers.get(weight_key, 1))
            if loss and weight:
                pairs.append((weight, loss))
        return positive(sum(w * loss for w, loss in pairs) / sum(w for w, _ in pairs)) if pairs else None

    def take(self, message: Message, partition: object = None) -> None:
        """A reply for the wrapped strategy."""
        self._places.append((partition if isinstance(partition, int) else math.inf, message))

    def cap(self, limit: ExamplesLimit, weight_key: str) -> None:
        """Lower the weights that are above the limit: the wrapped strategy, and `loss`, then see the bound."""
        told = [
            (message.metadata.src_node_id, metrics, weight)
            for message in self.messages
            for metrics in (message.content.metric_records.values() if message.has_content() else ())
            if (weight := positive(metrics.get(weight_key))) is not None
        ]
        bound = limit.bound([weight for _, _, weight in told])
        for node, metrics, weight in told:
            if weight > bound:
                self.capped[node] = weight
                metrics[weight_key] = bound if isinstance(metrics[weight_key], float) else max(1, math.floor(bound))

    def clip(self, server: Server, form: Form, bound: float) -> None:
        """Hold every client's arrays to the norm that differential privacy's noise is made for."""
        weights = server.weights
        assert isinstance(weights, Mapping)
        model = {name: widened(array) for name, array in form.whole(weights).items()}
        for _, message in self._places:
            for name, record in list(message.content.array_records.items()) if message.has_content() else ():
                arrays, shorter = clipped(arrays_in(record), model, bound)
                if shorter:
                    put(message, name, array_record(arrays))
                    self.clipped += 1

    def refuse(self, reply: Message, reason: str) -> None:
        """Note why a reply is refused; the wrapped strategy gets an error in its place."""
        self.refused[reply.metadata.src_node_id] = reason
        error = Error(MOD_FAILED, f"AdaQuantStrategy refused its reply: {reason}")
        self.take(make_message(metadata=reply.metadata, error=error))


def receive(
    server: Server,
    replies: Sequence[Message],
    clients: Mapping[int, int],
    weight_key: str,
    form: Form,
    bound: float | None = None,
) -> Received:
    """Hand a round's replies to the server, and back to plain arrays.

    clients: node -> client. weight_key: the metric by which the wrapped strategy weighs. form: of the model's
    arrays. bound: of what an update may be with differential privacy.
    """
    received, packed, plain = Received(), dict[int, tuple[Message, str]](), list[Message]()
    notes: dict[int, str] = {}
    differing = _differing([reply for reply in replies if not reply.has_error()], weight_key)
    for reply in replies:
        if reply.has_error():
            received.failed[reply.metadata.src_node_id] = str(reply.error.reason)
            received.take(reply)
            continue
        received.wire_bytes += size_of(reply.content)
        note = without_ours(reply)
        notes[reply.metadata.src_node_id] = str(note.get(NOTE, "")) if note is not None else ""
        client = clients.get(reply.metadata.src_node_id, -1)
        if reason := differing.get(reply.metadata.src_node_id):
            received.refuse(reply, reason)
            server.absent(client, reason)
            continue
        try:
            found = update_in(reply)
            if found is None:
                plain.append(reply)
                continue
            server.receive(client, found[1])
            packed[client] = reply, found[0]
        except Refused as error:
            received.refuse(reply, str(error))
    refused = _check_plain(server, plain, form)
    for number, reply in enumerate(plain):
        if number in refused:
            received.refuse(reply, refused[number])
        else:
            received.plain[reply.metadata.src_node_id] = notes[reply.metadata.src_node_id]
            received.take(reply)
    weights: Mapping[int, Any] = server.heard(wide=True)
    for client, (reply, name) in packed.items():
        if client not in weights:
            received.refuse(reply, server.missing[client])
        elif infinite := [key for key, array in weights[client].items() if not _finite(array)]:
            kind = weights[client][infinite[0]].dtype
            received.refuse(reply, f"Array {infinite[0]!r} is beyond the range of {kind} with its update.")
        else:
            partition = reply.content.config_records[name].get("partition")
            measured = reply.content.config_records[name].get(ERROR)
            if isinstance(measured, float) and 0 <= measured < math.inf:
                received.errors.append(measured)
            if reply.content.config_records[name].get(UNMEASURED):
                received.unmeasured += 1
            put(reply, name, array_record(form.whole(weights[client])))
            received.heard += 1
            received.take(reply, partition)
    received.cap(server.stages.examples_limit, weight_key)
    if bound is not None:
        received.clip(server, form, bound)
    return received


def _check_plain(server: Server, plain: Sequence[Message], form: Form) -> dict[int, str]:
    """Which replies with plain weights cannot be used, and why: other arrays than the model's, values that are not
    finite, or an update beyond `max_update_norm`. The median is that of all replies. Where the limit clips, the arrays
    of the others are replaced by clipped ones."""
    layout, model, limit, reasons, norms = server.current.layout, server.model, server.stages.limit, {}, {}
    models = {}
    for number, reply in enumerate(plain):
        try:
            records = list(reply.content.array_records.values())
            if len(records) != 1:
                raise ConfigError(f"It has {len(records)} ArrayRecords; expected one.")
            arrays = arrays_in(records[0])
            layout.check_types(arrays)
            sent = layout.split(form.once(arrays))
            if not layout.is_finite(sent):
                raise ConfigError("An array has a value that is NaN or infinite.")
            moved = np.concatenate([sent.weights - model.weights, sent.buffers - model.buffers])
            norms[number], models[number] = float(np.linalg.norm(moved.astype(np.float64))), sent
            if layout.has_bfloat16:  # nobody can compute with it
                name = next(iter(reply.content.array_records))
                put(reply, name, array_record({key: widened(array) for key, array in arrays.items()}))
        except (AdaQuantError, ValueError, TypeError) as error:
            reasons[number] = f"its arrays are not those of the model. {error}"
    middle = median([*server.norms.values(), *norms.values()]) if norms else 0.0
    for number, factor in limit.factors(norms, middle).items():
        shorter: Any = layout.join(models[number].towards(model, factor), wide=True)
        put(plain[number], next(iter(plain[number].content.array_records)), array_record(form.whole(shorter)))
    return reasons | limit.refused(norms, middle)


def _differing(replies: Sequence[Message], weight_key: str) -> dict[int, str]:
    """Who reports other metrics than most clients do, or a weight that is none, and why: Flower would stop the run."""
    kinds = {reply.metadata.src_node_id: _kinds(reply) for reply in replies}
    common = Counter(kinds.values()).most_common(1)[0][0] if kinds else frozenset()
    reasons = {}
    for reply in replies:
        node = reply.metadata.src_node_id
        weights = [metrics[weight_key] for metrics in reply.content.metric_records.values() if weight_key in metrics]
        if kinds[node] != common:
            names = sorted({f"{record}.{key}" for record, key, _ in kinds[node] ^ common})
            reasons[node] = f"its metrics are not those of the other clients: {', '.join(names[:5])}."
        elif any((weight := positive(value)) is None or weight >= 2**32 for value in weights):
            reasons[node] = f"its {weight_key} is {weights[0]!r}; expected a number above 0 and below 2^32."
    return reasons


def _kinds(message: Message) -> frozenset[tuple[str, str, str]]:
    """The metrics of a reply: record, name, and whether it is a number or a list of a certain length."""
    return frozenset(
        (name, key, f"list of {len(value)}" if isinstance(value, list) else "number")
        for name, metrics in message.content.metric_records.items()
        for key, value in metrics.items()
    )


def positive(value: object) -> float | None:
    """A finite number above 0, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _finite(array: AnyArray) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
