"""The messages of a step: each client's order in them, and a second message where a client could not use the first.

A client that lost the model it held gets the whole model, within the round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from ..errors import ConfigError
from ..protocol.server import Server
from .records import KEY, LAYOUT, ORDER, PARTITION, needs_model

TIMEOUT = 3600.0  # seconds; Flower's own where `start` is not told another
_QUERY_SECONDS = 60.0
_MESSAGE_BYTES = 119  # of a message's own object, measured


class Sent:
    """The messages of one step that are out, by node.

    Attributes:
        message_bytes: of all messages, as Flower serializes them.
        waited: seconds that the answers to later messages took.
        name: of the record with the model; empty where the messages have no orders.
    """

    def __init__(self, messages: Iterable[Message], grid: Grid, timeout: float) -> None:
        self.messages = {message.metadata.dst_node_id: message for message in messages}
        self.grid, self.timeout, self.name = grid, timeout, ""
        self.message_bytes, self.waited = 0, 0.0
        self._whole: Callable[[int], RecordDict] | None = None

    def write(
        self,
        server: Server,
        clients: Mapping[int, int],
        name: str,
        same: bool,
        settings: dict[str, Any],
        evaluate: bool = False,
    ) -> None:
        """Write the orders into the messages.

        With the whole model, Flower's own record of it stays, so that a client without the mod can use it.

        Args:
            server: who makes them.
            clients: node -> client.
            name: of the record with the model.
            same: whether Flower's own record has the server's model, bit for bit.
            settings: what the mod has to know in addition to the order.
            evaluate: the clients only evaluate the model.
        """
        contents, log, self.name = {node: self.messages[node].content for node in clients}, server.current.log, name

        def written(node: int, whole: bool = True) -> RecordDict:
            client, others, ours = clients[node], dict(contents[node]), {**settings, "arrays": name}
            if not whole and log.leads_from(log.holds.get(client)):
                ours[ORDER] = server.order(client, evaluate=evaluate)
                del others[name]
            elif same:
                ours[ORDER] = server.order(client, server.digest, evaluate=evaluate)
                ours[LAYOUT] = server.current.layout.to_json()
            else:
                ours[ORDER] = server.order(client, None, evaluate=evaluate)
            return RecordDict({**others, KEY: ConfigRecord(ours)})

        self._whole = written
        for node in clients:
            self.messages[node].content = written(node, whole=False)

    def again(self, replies: Iterable[Message]) -> tuple[list[Message], list[int]]:
        """Send the whole model to those who need it.

        Returns:
            The replies, where those to a second message replace errors, and the nodes that were sent one.
        """
        replies, whole = list(replies), self._whole
        if whole is None:
            return replies, []
        lost = [node for node in map(self.node_of, filter(needs_model, replies)) if node in self.messages]
        answers = {reply.metadata.src_node_id: reply for reply in self.send({node: whole(node) for node in lost})}
        return [answers.get(self.node_of(reply), reply) for reply in replies], lost

    def node_of(self, reply: Message) -> int:
        """Who sent a reply. Errors of some of Flower's mods are replies to the client's own reply."""
        source = reply.metadata.src_node_id
        return source if source in self.messages else reply.metadata.dst_node_id

    def send(self, contents: Mapping[int, RecordDict]) -> list[Message]:
        """Further messages of the round, and the replies to them."""
        if not contents:
            return []
        messages = []
        for node, content in contents.items():
            about = self.messages[node].metadata
            messages.append(Message(content, node, about.message_type, ttl=about.ttl, group_id=about.group_id))
        self.message_bytes += bytes_of(messages)
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


def questions(nodes: Iterable[int]) -> list[Message]:
    """Messages that ask the mods of these nodes for their partitions.

    They are train messages: Flower hands no others to mods unless the app has a handler for them.
    """
    return [Message(RecordDict({KEY: ConfigRecord()}), node, MessageType.TRAIN) for node in nodes]


def partition_in(reply: Message) -> int | None:
    """The answer to a question; None from nodes without a partition or without the mod."""
    ours = reply.content.config_records.get(KEY) if reply.has_content() else None
    found = ours.get(PARTITION) if ours is not None else None
    return found if isinstance(found, int) else None


def partitions(grid: Grid, nodes: Sequence[int]) -> dict[int, int]:
    """Node -> partition, of the nodes that have one."""
    replies = grid.send_and_receive(questions(nodes), timeout=_QUERY_SECONDS) if nodes else ()
    found = {reply.metadata.src_node_id: partition_in(reply) for reply in replies}
    return {node: partition for node, partition in found.items() if partition is not None}


def bytes_of(messages: Iterable[Message]) -> int:
    """The bytes of messages as Flower serializes them; errors do not count.

    HTTP's headers, TLS, and the requests by which nodes ask for messages come on top.
    """
    known: dict[int, int] = {}  # records that many messages share are serialized once
    contents = [message.content for message in messages if message.has_content()]
    for content in contents:
        for record in content.values():
            if id(record) not in known:
                known[id(record)] = _serialized(record)
    own = sum(_MESSAGE_BYTES + len(content.deflate()) for content in contents)
    return own + sum(known[id(record)] for content in contents for record in content.values())


def _serialized(part: Any) -> int:
    return len(part.deflate()) + sum(map(_serialized, (part.children or {}).values()))
