"""The nodes that the strategy has met: which client each of them is, who sends plain weights, and what the log says."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from flwr.app import Message

from ..errors import EngineError
from ..protocol.cohort import who_is_missing
from .once import Once
from .receive import Received

_log = logging.getLogger("flwr")
_MOST_NAMES = 5  # of nodes in a sentence
_UNMEASURED = (
    "%d of %d clients do not measure what noise does to their loss. The rule counts it as 0 there: it chooses levels "
    "by cost and error alone, and takes finer ones when the training loss rises. Give the mod a probe: "
    "mods=[functools.partial(quantize_mod, probe=loss_of)]."
)


class Fleet:
    """numbers: node -> client, in the order in which the nodes were met. plain: nodes that get no orders, and why.
    readers: nodes that have opened the model of an evaluate message.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.plain: dict[int, str] = {}
        self.readers: set[int] = set()
        self.once = Once(_log)

    def clients(self, messages: Sequence[Message]) -> list[int]:
        """The clients that messages go to; nodes that were never met get the next numbers."""
        return [self.numbers.setdefault(m.metadata.dst_node_id, len(self.numbers)) for m in messages]

    def take(self, messages: Iterable[Message]) -> list[Message]:
        """The messages to nodes that take orders."""
        return [message for message in messages if message.metadata.dst_node_id not in self.plain]

    def note_second(self, lost: Sequence[int], plain: Mapping[int, str]) -> None:
        """Nodes that were sent a second message: with the whole model, or, from now on, without orders."""
        for node in lost:
            self.once("lost", "Node %d did not hold the model that it was sent before. It gets the whole one.", node)
        self.plain.update(plain)

    def say(self, server_round: int, received: Received) -> None:
        """Log what happened to the replies: refusals each time, what is true of the fleet once."""
        for node, reason in received.refused.items():
            _log.warning("Refused the reply of node %d: %s", node, reason)
        if received.unmeasured:
            self.once("unmeasured", _UNMEASURED, received.unmeasured, received.heard)
        count = len(received.plain)
        if not count:
            return
        names = ", ".join(map(str, sorted(received.plain)[:_MOST_NAMES])) + (", ..." if count > _MOST_NAMES else "")
        reasons = {note or self.plain.get(node, "") for node, note in received.plain.items()}
        notes = " ".join(sorted(reasons - {""}))
        advice = notes or "Give the ClientApp the mod: ClientApp(mods=[quantize_mod])."
        if not received.heard:
            text = "Nothing was quantized in round %d: %d clients sent plain weights (nodes %s). %s"
            self.once(f"nothing {advice}", text, server_round, count, names, advice)
        else:
            text = "In round %d, %d of %d clients sent plain weights (nodes %s). %s"
            self.once(f"mixed {advice}", text, server_round, count, received.usable, names, advice)


def check_usable(server_round: int, asked: int, usable: int, reasons: Mapping[int, str]) -> None:
    """End the run where no reply of a round can be used: it would finish with a model that was never trained."""
    if asked and not usable:
        why = f"By node: {who_is_missing(reasons)}" if reasons else "Nobody answered in time."
        raise EngineError(f"Round {server_round}: none of the {asked} clients can be used. {why}")
