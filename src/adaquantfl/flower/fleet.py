"""The nodes that the strategy has met: which client each of them is, and what the log says."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ..errors import EngineError
from ..protocol.cohort import who_is_missing
from .receive import Received

log = logging.getLogger("flwr")
_MOST_NAMES = 5  # of nodes in a sentence
_ALL_CLIPPED = (
    "In round %d the updates of all %d clients were longer than differential privacy's clipping norm once they were "
    "decoded, and the server made them shorter, to %.3g of their length on average. That is quantization noise: take "
    "finer levels (rule='8bit', or Auto with a smaller delay) or a larger clipping norm."
)


class Once:
    """Warns, but about each subject only the first time: what is true in round 1 is true in round 1000."""

    def __init__(self) -> None:
        self._said = set[str]()

    def __call__(self, subject: str, text: str, *values: object) -> None:
        if subject not in self._said:
            self._said.add(subject)
            log.warning(text, *values)


class Fleet:
    """The nodes of a run.

    Attributes:
        numbers: node -> client, in the order in which the nodes were met, or by their partitions.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.once = Once()

    def clients(self, nodes: Iterable[int], partitions: Mapping[int, int]) -> dict[int, int]:
        """Node -> client. Nodes that were never met get their partition's number, or else the next free one."""
        nodes, taken = list(nodes), set(self.numbers.values())
        for node in [*sorted(partitions, key=lambda node: partitions[node]), *nodes]:
            if node not in self.numbers:
                wanted = partitions.get(node, -1)
                free = wanted >= 0 and wanted not in taken
                self.numbers[node] = wanted if free else max(taken, default=-1) + 1
                taken.add(self.numbers[node])
        return {node: self.numbers[node] for node in nodes}

    def say(self, server_round: int, received: Received) -> None:
        """Log what happened to the replies: refusals each time, what is true of the fleet once."""
        for node, reason in received.refused.items():
            log.warning("Refused the reply of node %d: %s", node, reason)
        for node, weight in received.capped.items():
            log.warning("Node %d says that it has %g examples, which is above max_examples.", node, weight)
        if received.clipped and len(received.clipped) == received.usable:
            share = sum(received.clipped) / received.usable
            self.once("clipped", _ALL_CLIPPED, server_round, received.usable, share)
        if count := len(received.plain):
            names = ", ".join(map(str, sorted(received.plain)[:_MOST_NAMES])) + (", ..." if count > _MOST_NAMES else "")
            notes = " ".join(sorted(set(received.plain.values()) - {""}))
            advice = notes or "Give the ClientApp the mod: ClientApp(mods=[quantize_mod])."
            text = "In round %d, %d of %d clients sent plain weights (nodes %s). %s"
            self.once(f"plain {advice}", text, server_round, count, received.usable, names, advice)


def check_usable(server_round: int, asked: int, usable: int, reasons: Mapping[int, str]) -> None:
    """End the run where no reply of a round can be used: it would finish with a model that was never trained."""
    if asked and not usable:
        why = f"By node: {who_is_missing(reasons)}" if reasons else "Nobody answered in time."
        raise EngineError(f"Round {server_round}: none of the {asked} clients can be used. {why}")
