"""The nodes of a run: messages out, replies in, and which node plays which client.

No call here waits. A caller that waits for a reply does so in a loop with an end. PyTorch is not imported, because a
node that only says who it is does not need it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version

from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict, UserConfigValue
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from ...errors import EngineError
from .node_keys import check_key

_KEY = "adaquantfl"  # of the record in which a node says who it is
_HOW_TO_START = "Start it with --node-config 'partition-id=I num-partitions=N'."
_LOOK_EVERY = 2.0  # seconds between looks at who is connected
_ASK_AGAIN = 60.0  # seconds until a node is asked again: the question was lost, or the answer was of no use
_LONGEST_REASON = 500  # characters
_REASONS = {
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION: "its ClientApp cannot be loaded: is adaquantfl[train,flower] installed there?",
    ErrorCode.MESSAGE_UNAVAILABLE: "no answer in time: Flower gave the message up.",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "no answer in time: Flower gave the message up.",
    ErrorCode.NODE_UNAVAILABLE: "its SuperNode is gone: it gave no sign of life for a minute.",
    ErrorCode.CLIENT_APP_CRASHED: "its ClientApp ended in mid-round; out of memory is the usual cause.",
}


class Inbox:
    """A `Grid` that remembers which replies nobody waits for any more."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._late: set[str] = set()

    def nodes(self) -> set[int]:
        """The nodes that are connected."""
        return set(self._grid.get_node_ids())

    def key_of(self, node: int) -> bytes:
        """The public key with which a node has registered; empty where the node is gone."""
        return next((bytes(info.public_key) for info in self._grid.get_nodes() if info.node_id == node), b"")

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


class Nodes:
    """Finds the clients' nodes. `of` has the node of each client that is there, `holds` the model that a node has.

    A node is asked once which client it plays. One that comes back has another id, and is asked again. keys: client ->
    the public key of its node. Without keys every node is believed, and the newest node of a client replaces the older.
    """

    def __init__(self, inbox: Inbox, clients: int, keys: Mapping[int, bytes] | None = None) -> None:
        self.of: dict[int, int] = {}
        self.holds: dict[int, bytes] = {}  # node -> the digest of the model that it was sent last
        self._keeping: set[int] = set()  # nodes whose process keeps the models that it is sent
        self._inbox, self._clients, self._keys = inbox, clients, keys or {}
        self._connected: set[int] = set()
        self._asked: dict[str, tuple[int, float]] = {}  # id of the question -> node, when
        self._unfit: dict[int, tuple[str, float]] = {}  # node -> why it plays no client, and since when
        self._looked = -_LOOK_EVERY

    @property
    def complete(self) -> bool:
        return len(self.of) == self._clients

    @property
    def asking(self) -> bool:
        """Whether some node has still to say who it is."""
        return bool(self._asked)

    def refresh(self) -> None:
        """Ask nodes that are new, hear those that were asked, forget those that have left."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            self._look(now)
        for number, reply in self._inbox.receive(self._asked).items():
            node, _ = self._asked.pop(number)
            self._unfit.pop(node, None)
            try:
                client, keeps = read_identity(reply, self._clients)
                if self._keys:
                    check_key(self._keys, client, self._inbox.key_of(node))
                self.of[client] = node  # the last one to come is the live one
                self._keeping |= {node} if keeps else set()
            except EngineError as error:
                self._unfit[node] = str(error), now

    def note(self, node: int, digest: bytes) -> None:
        """The model that a node holds now, if it keeps models at all; empty: not known."""
        self.holds.pop(node, None)
        if digest and node in self._keeping:
            self.holds[node] = digest

    def lost(self, client: int) -> str:
        """Why this client has no node, in a sentence."""
        sentence = f"no SuperNode with partition-id={client} is connected."
        if self._unfit:
            reasons = sorted({reason for reason, _ in self._unfit.values()})
            sentence += f" {len(self._unfit)} other(s) cannot take part: {' '.join(reasons)}"
        elif not self._connected:
            sentence += f" {_HOW_TO_START}"
        return sentence

    def _look(self, now: float) -> None:
        connected = self._inbox.nodes()
        lost = {number for number, (_, asked) in self._asked.items() if now - asked > _ASK_AGAIN}
        self._inbox.forget(lost)
        again = {self._asked.pop(number)[0] for number in lost}
        again |= {node for node, (_, since) in self._unfit.items() if now - since > _ASK_AGAIN}
        fresh = connected - (self._connected - again)
        self._connected = connected
        self.of = {client: node for client, node in self.of.items() if node in connected}
        self.holds = {node: digest for node, digest in self.holds.items() if node in connected}
        self._keeping &= connected
        self._unfit = {node: unfit for node, unfit in self._unfit.items() if node in connected - fresh}
        if fresh:
            questions = {node: RecordDict() for node in sorted(fresh)}
            sent = self._inbox.send(MessageType.QUERY, questions, _ASK_AGAIN)
            self._asked |= {number: (node, now) for node, number in sent.items()}


def write_identity(node_config: Mapping[str, UserConfigValue], keeps: bool) -> RecordDict:
    """What a node says of itself: its client, and whether its process keeps the models that it is sent."""
    client, clients = (str(node_config.get(key, "")) for key in ("partition-id", "num-partitions"))
    ours = version("adaquantfl")
    return RecordDict({_KEY: ConfigRecord({"client": client, "clients": clients, "keeps": keeps, "version": ours})})


def read_identity(reply: Message, clients: int) -> tuple[int, bool]:
    """Which client a node plays, and whether it keeps models. EngineError where it cannot take part in the run."""
    if reply.has_error():
        raise EngineError(reason_of_error(reply.error))
    record = reply.content.config_records.get(_KEY) or ConfigRecord()
    client, partitions = str(record.get("client", "")), str(record.get("clients", ""))
    theirs, ours = str(record.get("version", "")), version("adaquantfl")
    if theirs != ours:
        raise EngineError(f"It runs adaquantfl {theirs or 'of no known version'}, the server {ours}. Install the same.")
    if not client.isdecimal():
        raise EngineError(f"It has no partition-id. {_HOW_TO_START}")
    if partitions not in ("", str(clients)):
        raise EngineError(f"It was started with num-partitions={partitions}, but the run has clients = {clients}.")
    if int(client) >= clients:
        raise EngineError(f"Its partition-id is {client}, but clients are numbered from 0 to {clients - 1}.")
    return int(client), record.get("keeps") is True


def reason_of_error(error: Error) -> str:
    """Why there is no reply, where Flower reports an error in its place."""
    told = f"Flower reports error {error.code}: {printable(error.reason or 'no reason given')}"
    return _REASONS.get(error.code, told)


def printable(text: str) -> str:
    """What another host says, fit for a terminal and a history.

    >>> printable("no data\\x1b[2J today")
    'no data [2J today'
    """
    return "".join(c if c.isprintable() else " " for c in text[:_LONGEST_REASON]).strip()
