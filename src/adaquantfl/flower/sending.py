"""What Flower's messages carry: each client's order, and a second message where a client could not use the first.

A message is sent again, within the round, in two cases. A client that lost the model it held gets the whole model. A
client that cannot read the order, or whose other mods do not let it pass, gets the message without it. That client
answers with plain weights, in this round and in all that follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ..errors import ConfigError
from ..protocol.downlink import held_parcel
from ..protocol.messages import Order
from .records import KEY, LAYOUT, ORDER, needs_model, size_of
from .traffic import Meter

TIMEOUT = 3600.0  # seconds; Flower's own where `start` is not told another
_MOD_ORDER = re.compile(r"\w+ expects exactly one (Array|Config)Record")  # what Flower's own mods say of our records
MOD_ORDER_ADVICE = (
    "Another mod comes before quantize_mod, or there is no quantize_mod. Put it first: mods=[quantize_mod, ...]."
)


@dataclass(frozen=True)
class Envelope:
    """How the orders of one step travel.

    name: of the record with the model. same: whether Flower's own record has the server's model, bit for bit. settings:
    what the mod has to know in addition to the order.
    """

    name: str
    same: bool
    settings: dict[str, Any]

    def write(self, content: RecordDict, data: bytes | None) -> RecordDict:
        """The content of a message with a client's order; None: only with the settings.

        With the whole model, Flower's own record of it stays, so that a client without the mod can use it.
        """
        ours, others = dict(self.settings), dict(content)
        if data is not None:
            order = Order.unpack(data)
            if order.layout and self.same:
                ours[LAYOUT], data = order.layout, replace(order, parcel=held_parcel(order.parcel), layout="").pack()
            elif not order.layout:
                del others[self.name]
            ours[ORDER] = data
        return RecordDict({**others, KEY: ConfigRecord(ours)})


@dataclass
class Sent:
    """The messages of one step that are out: node -> the message, and its content as the wrapped strategy made it.

    envelope: None where they have no orders.
    """

    grid: Grid
    timeout: float
    messages: dict[int, tuple[Message, RecordDict]]
    envelope: Envelope | None = None
    wire_bytes: int = 0  # of all records, as Flower's message_size_mod counts them
    message_bytes: int = 0  # as they are serialized
    waited: float = 0.0  # seconds for the answers to second messages
    meter: Meter = field(default_factory=Meter)

    @staticmethod
    def of(messages: Sequence[Message], grid: Grid, timeout: float) -> Sent:
        """Before the orders are written."""
        return Sent(grid, timeout, {m.metadata.dst_node_id: (m, m.content) for m in messages})

    def count(self) -> None:
        """Count the bytes, once the orders are written."""
        contents = [message.content for message, _ in self.messages.values()]
        self.wire_bytes, self.message_bytes = sum(map(size_of, contents)), self.meter.total(contents)

    def again(
        self, replies: Iterable[Message], whole: Callable[[int], bytes]
    ) -> tuple[list[Message], list[int], dict[int, str]]:
        """The replies, where those to a second message replace errors. And the nodes that were sent the whole model,
        and node -> why it has to do without orders from now on.

        whole: a node's order with the whole model.
        """
        replies, second, lost, plain = list(replies), dict[int, RecordDict](), list[int](), dict[int, str]()
        for reply in replies if self.envelope is not None else ():
            node = self._node(reply)
            message, original = self.messages.get(node, (None, None))
            if not reply.has_error() or message is None or original is None or KEY not in message.content:
                continue
            reason = str(reply.error.reason)
            if needs_model(reply):
                assert self.envelope is not None
                second[node] = self.envelope.write(original, whole(node))
                lost.append(node)
            elif _MOD_ORDER.match(reason):
                second[node], plain[node] = original, f"{reason} {MOD_ORDER_ADVICE}"
        answers = {reply.metadata.src_node_id: reply for reply in self._send(second)} if second else {}
        return [answers.get(self._node(reply), reply) for reply in replies], lost, plain

    def _node(self, reply: Message) -> int:
        """Who sent a reply. Errors of some of Flower's mods are replies to the client's own reply."""
        source = reply.metadata.src_node_id
        return source if source in self.messages else reply.metadata.dst_node_id

    def _send(self, contents: dict[int, RecordDict]) -> Iterable[Message]:
        messages = []
        for node, content in contents.items():
            about = self.messages[node][0].metadata
            self.wire_bytes += size_of(content)
            self.message_bytes += self.meter.size(content)
            messages.append(Message(content, node, about.message_type, ttl=about.ttl, group_id=about.group_id))
        began = perf_counter()
        replies = list(self.grid.send_and_receive(messages, timeout=self.timeout))
        self.waited += perf_counter() - began
        return replies


def model_in(messages: Sequence[Message]) -> tuple[str, ArrayRecord]:
    """The model that all messages carry, and its name. ConfigError where there is not just one."""
    models = [list(message.content.array_records.items()) for message in messages]
    if len(models[0]) != 1 or any(model != models[0] for model in models):
        raise ConfigError("It takes one ArrayRecord per message, the same for all clients.")
    return models[0][0]
