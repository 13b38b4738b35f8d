"""Which node plays which client. A node is asked once; one that comes back has another id, and is asked again."""

from __future__ import annotations

import time

from flwr.app import MessageType, RecordDict

from ...errors import EngineError
from .identity import HOW, read_identity
from .inbox import Inbox
from .records import failure_of

_LOOK_EVERY = 2.0  # seconds between looks at who is connected
_ASK_AGAIN = 60.0  # seconds until a node is asked again: the question was lost, or the answer was of no use


class Nodes:
    """Finds the clients' nodes. `of` has the node of each client that is there, `holds` the model that a node has."""

    def __init__(self, inbox: Inbox, clients: int) -> None:
        self.of: dict[int, int] = {}
        self.holds: dict[int, bytes] = {}  # node -> the digest of the model that it was sent last
        self._keeping: set[int] = set()
        self._inbox = inbox
        self._clients = clients
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
            if reply.has_error():
                self._unfit[node] = failure_of(reply.error).reason, now
                continue
            try:
                identity = read_identity(reply.content, self._clients)
                self.of[identity.client] = node  # the last one to come is the live one
                self._keeping |= {node} if identity.keeps else set()
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
            sentence += f" {HOW}"
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
