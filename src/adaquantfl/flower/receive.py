"""A round's replies: updates go to the server, and come back as plain arrays for the wrapped strategy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
from flwr.app import Message

from ..errors import AdaQuantError, ConfigError, Refused
from ..protocol.arrays import QUANTIZED, AnyArray, Model
from ..protocol.bfloat16 import widened
from ..protocol.limits import ExamplesLimit, bounded
from ..protocol.server import Server
from . import records
from .losses import loss_in, numbers_in
from .privacy import clipped
from .sending import bytes_of

_NEEDS_MOD = (
    "it sent plain weights. Without a wrapped strategy every ClientApp needs the mod: ClientApp(mods=[quantize_mod]). "
    "AdaQuantStrategy(FedAvg()) takes clients without it."
)


@dataclass
class Received:
    """The replies as the wrapped strategy sees them.

    Attributes:
        bytes_up: of all replies, as Flower serializes them.
        heard: how many updates are in.
        plain: node -> why it sent plain weights, where it said so.
        clipped: for each client whose arrays differential privacy made shorter, to which share of their length.
        errors: of the quantizers, as the clients measured them.
        refused, failed: node -> why; failed ones sent an error.
        capped: node -> its weight, which was above `max_examples`.
        bounded: nodes whose loss is far from the others'.
    """

    bytes_up: int = 0
    heard: int = 0
    plain: dict[int, str] = field(default_factory=dict)
    clipped: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    capped: dict[int, float] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    bounded: list[int] = field(default_factory=list)
    _places: list[tuple[float, int, Message]] = field(default_factory=list)

    @property
    def usable(self) -> int:
        """How many replies the wrapped strategy can aggregate."""
        return self.heard + len(self.plain)

    @property
    def messages(self) -> list[Message]:
        """In the order of partitions and nodes, so that sums do not depend on who was first."""
        return [message for *_, message in sorted(self._places, key=lambda place: place[:2])]

    @property
    def metrics(self) -> dict[str, Any]:
        """What happened to the replies, for Flower's metrics."""
        return {
            "aq_quantized": self.heard,
            "aq_plain": len(self.plain),
            "aq_failed": len(self.failed),
            "aq_clipped": len(self.clipped),
            "aq_refused": len(self.refused),
            "aq_capped": len(self.capped),
            "aq_bounded": len(self.bounded),
            **({"aq_error": fmean(self.errors)} if self.errors else {}),
        }

    def loss(self, loss_keys: Sequence[str], weight_key: str) -> float | None:
        """f(w_k): the clients' training losses, weighted as the wrapped strategy weighs them. A loss that no rule can
        use (NaN, infinite, not above 0) is left out, so that one client cannot stop the run with it. Losses that are
        far from the others' count as `limits.bounded` says, and their nodes are in `bounded` then."""
        losses, weights = dict[int, float](), dict[int, float]()
        for message in self.messages:
            numbers, node = numbers_in(message.content), message.metadata.src_node_id
            loss, weight = positive(loss_in(numbers, loss_keys)), positive(numbers.get(weight_key, 1))
            if loss and weight:
                losses[node], weights[node] = loss, weight
        counted = bounded(losses, weights)
        self.bounded = [node for node, loss in losses.items() if counted[node] != loss]
        total = sum(weights[node] * loss for node, loss in counted.items())
        return positive(total / sum(weights.values())) if losses else None

    def take(self, message: Message, partition: object = None) -> None:
        """A reply for the wrapped strategy."""
        place = partition if isinstance(partition, int) else math.inf
        self._places.append((place, message.metadata.src_node_id, message))

    def cap(self, limit: ExamplesLimit, weight_key: str) -> None:
        """Lower the weights that are above the limit: the wrapped strategy, and `loss`, then see the bound."""
        told = [
            (message.metadata.src_node_id, metrics, weight)
            for message in self.messages
            for metrics in message.content.metric_records.values()
            if (weight := positive(metrics.get(weight_key))) is not None
        ]
        bound = limit.most([weight for *_, weight in told])
        for node, metrics, weight in told:
            if weight > bound:
                self.capped[node] = weight
                metrics[weight_key] = bound if isinstance(metrics[weight_key], float) else max(1, math.floor(bound))

    def clip(self, server: Server, bound: float) -> None:
        """Hold what is quantized to the norm that differential privacy's noise is made for."""
        weights = server.weights
        assert isinstance(weights, Mapping)  # our models have names
        model = {name: widened(array) for name, array in weights.items()}
        exact = [entry.name for entry in server.current.layout.entries if entry.kind != QUANTIZED]
        for message in self.messages:
            for name, record in list(message.content.array_records.items()):
                arrays, share = clipped(records.arrays_in(record), model, bound, exact)
                if share < 1:
                    records.put(message, name, records.array_record(arrays))
                    self.clipped.append(share)


def receive(
    server: Server,
    replies: Sequence[Message],
    clients: Mapping[int, int],
    weight_key: str,
    averages: bool,
) -> Received:
    """Hand a round's replies to the server and, unless it averages itself, back to plain arrays.

    They are taken in the order of the clients' numbers: who came first decides nothing.

    Args:
        server: with an open round.
        replies: all of them, errors too.
        clients: node -> client.
        weight_key: the metric by which the wrapped strategy weighs.
        averages: the server makes the new model; there is no wrapped strategy.
    """
    received, packed, plain = Received(bytes_of(replies)), dict[int, tuple[Message, str]](), dict[int, Model]()
    replies = sorted(replies, key=lambda reply: clients.get(reply.metadata.src_node_id, math.inf))
    received.failed = {reply.metadata.src_node_id: records.why_failed(reply) for reply in replies if reply.has_error()}
    answers = {reply.metadata.src_node_id: reply for reply in replies if not reply.has_error()}
    reasons = _differing(answers, weight_key)
    for node, reply in answers.items():
        client, ours = clients.get(node, -1), records.without_ours(reply)
        try:
            if node in reasons:
                raise Refused(reasons[node])
            if (found := records.update_in(reply)) is not None:
                server.receive(client, found[1])
                packed[node] = reply, found[0]
            elif averages:
                raise Refused(_NEEDS_MOD)
            else:
                plain[node] = _plain_model(server, client, reply)
                received.plain[node] = str(ours.get(records.NOTE, "")) if ours is not None else ""
        except Refused as error:
            received.refused[node] = str(error)
            server.absent(client, str(error))
    missing, factors = server.refuse_outliers(), server.factors
    weights: Mapping[int, Any] = {} if averages else server.heard(wide=True)
    for node, model in plain.items():
        client, reply = clients.get(node, -1), answers[node]
        if client in missing:
            received.refused[node] = missing[client]
            del received.plain[node]
            continue
        if client in factors:
            ((name, _),) = reply.content.array_records.items()
            shorter = model.towards(server.model, factors[client])
            records.put(reply, name, records.array_record(server.current.layout.join(shorter, wide=True)))
        received.take(reply)
    for node, (reply, name) in packed.items():
        client = clients[node]
        if reason := missing.get(client, "") or _unusable(weights.get(client, {})):
            received.refused[node] = reason
            continue
        told, received.heard = reply.content.config_records[name], received.heard + 1
        received.take(reply, told.get(records.PARTITION))
        if isinstance(measured := told.get(records.ERROR), float) and 0 <= measured < math.inf:
            received.errors.append(measured)
        if not averages:
            records.put(reply, name, records.array_record(weights[client]))
    received.cap(server.stages.examples_limit, weight_key)
    return received


def _unusable(arrays: Mapping[str, AnyArray]) -> str:
    """Why an update that the server took cannot be used after all; empty where it can."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"Array {name!r} is beyond the range of {array.dtype} with its update."
    return ""


def _plain_model(server: Server, client: int, reply: Message) -> Model:
    """Read and measure the model of a reply with plain weights.

    Refused where it has other arrays than the model, or values that are not finite.
    """
    layout = server.current.layout
    try:
        name, arrays = records.trained_in(reply)
        layout.check_types(arrays)
        model = layout.split(arrays)
        if not layout.is_finite(model):
            raise ConfigError("An array has a value that is NaN or infinite.")
    except (AdaQuantError, ValueError, TypeError) as error:
        raise Refused(f"its arrays are not those of the model. {error}") from error
    server.measured(client, model)
    if layout.has_bfloat16:  # nobody can compute with it
        records.put(reply, name, records.array_record({key: widened(array) for key, array in arrays.items()}))
    return model


def _differing(replies: Mapping[int, Message], weight_key: str) -> dict[int, str]:
    """Who reports other metrics than most clients do, or a weight that is none, and why: Flower would stop the run.

    Where two kinds are equally frequent, the one of the client with the lowest number counts.
    """
    kinds = {node: _kinds(reply) for node, reply in replies.items()}
    common = Counter(kinds.values()).most_common(1)[0][0] if kinds else frozenset()
    reasons = {}
    for node, reply in replies.items():
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
