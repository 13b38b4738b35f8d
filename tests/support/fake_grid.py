"""SuperNodes in this process that run our ClientApp: real messages, serialized and read again, but no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message.message import make_message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from adaquantfl.engines.calls import Player
from adaquantfl.engines.flower import client
from support.fake_flower import carry

Tamper = Callable[[Message], Message | None]
NODE_GONE = 5  # Flower's error code


class NodesHere(Grid):
    """Nodes 1000, 1001, ... with partitions 0, 1, ...

    tamper: client -> what becomes of its replies to train messages; None: there is none.
    """

    def __init__(self, clients: int, tamper: dict[int, Tamper] | None = None) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.nodes: dict[int, dict[str, Any]] = {
            1000 + client: {"partition-id": client, "num-partitions": clients} for client in range(clients)
        }
        self.tamper = tamper or {}
        self.keys: dict[int, bytes] = {}  # node -> its public key
        self.sent: list[Message] = []
        self.players: dict[int, Player] = {}  # node -> what its process holds
        self.contexts: dict[int, Context] = {}  # node -> what Flower keeps for its ClientApp
        self.most_out = 0
        self._replies: dict[str, Message | None] = {}

    def move(self, client: int) -> None:
        """The client's node dies, and comes back under another id."""
        (old,) = [node for node, config in self.nodes.items() if config.get("partition-id") == client]
        self.nodes[max(self.nodes) + 1000] = self.nodes.pop(old)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, public_key=self.keys.get(node, b"")) for node in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            number = message.object_id
            message.metadata.__dict__["_message_id"] = number  # as Flower's grids do it
            self.sent.append(message)
            if message.metadata.dst_node_id in self.nodes:
                self._replies[number] = self._answer(message)
                ids.append(number)
        self.most_out = max(self.most_out, len(self._replies))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)  # in the order in which they were answered, whatever the order of the ids
        found = [reply for number, reply in self._replies.items() if number in wanted and reply is not None]
        for reply in found:
            assert reply is not None
            del self._replies[reply.metadata.reply_to_message_id]
        return [reply for reply in found if reply is not None]

    def _answer(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        config = self.nodes[node]
        context = self.contexts.setdefault(node, Context(1, node, config, RecordDict(), {}))
        delivered = carry(message)
        delivered.metadata.__dict__["_message_id"] = message.metadata.message_id
        if message.metadata.message_type != "query" and not client.resident:
            client.player_for.cache_clear()  # a process per message
        found = client.player_for
        if client.resident:
            client.player_for = lambda text: self.players.setdefault(node, found.__wrapped__(text))  # type: ignore
        try:
            reply = carry(client.app(delivered, context))
        finally:
            client.player_for = found
        if message.metadata.message_type == "train" and config.get("partition-id") in self.tamper:
            return self.tamper[config["partition-id"]](reply)
        return reply

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError


def error(code: int, reason: str = "") -> Tamper:
    """Flower's own word in place of a reply. It comes from the SuperLink, not from the node."""

    def tamper(reply: Message) -> Message:
        reply.metadata.__dict__["_src_node_id"] = 1
        return make_message(metadata=reply.metadata, error=Error(code, reason))

    return tamper
