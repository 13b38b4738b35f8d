"""Messages out, replies in. No call here waits; whoever waits for a reply does so in a loop with an end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid


class Inbox:
    """A `Grid` that remembers which replies nobody waits for any more."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._late: set[str] = set()

    def nodes(self) -> set[int]:
        """The nodes that are connected."""
        return set(self._grid.get_node_ids())

    def send(self, kind: str, contents: Mapping[int, RecordDict], seconds: float, group: str = "") -> dict[int, str]:
        """One message to each of these nodes; node -> id. Left out: nodes that Flower does not know any more.

        A node that is busy for more than `seconds` does not get it at all: its answer would come too late.
        """
        messages = [
            Message(content, node, kind, ttl=seconds, group_id=group or None) for node, content in contents.items()
        ]
        taken = set(self._grid.push_messages(messages))
        ids = {message.metadata.dst_node_id: message.metadata.message_id for message in messages}
        return {node: number for node, number in ids.items() if number in taken}

    def receive(self, wanted: Iterable[str]) -> dict[str, Message]:
        """The replies that are there: id of the message -> reply. Late ones are fetched too, and dropped."""
        wanted = set(wanted)
        if not wanted and not self._late:
            return {}
        # Flower's own errors have no sender: the message that they answer says who was meant.
        replies = {reply.metadata.reply_to_message_id: reply for reply in self._grid.pull_messages(wanted | self._late)}
        self._late -= set(replies)
        return {number: reply for number, reply in replies.items() if number in wanted}

    def forget(self, numbers: Iterable[str]) -> None:
        """Nobody waits for these replies. They are fetched when they come, so that they do not pile up in Flower."""
        self._late |= set(numbers)
