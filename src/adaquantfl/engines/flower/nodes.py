"""Which node plays which client. A node is asked once; one that comes back has another id, and is asked again."""

from __future__ import annotations

import time

from flwr.app import MessageType, RecordDict

from ...errors import EngineError
from .identity import HOW, read_identity
from .mail import Mail
from .replies import failure_of

_LOOK_EVERY = 2.0  # seconds between looks at who is connected
_ANSWER_WITHIN = 60.0  # seconds; then the question was lost with the process that took it, and is asked again


class Nodes:
    """Finds the clients' nodes. `of` has the node of each client that is there."""

    def __init__(self, mail: Mail, clients: int) -> None:
        self.of: dict[int, int] = {}
        self._mail = mail
        self._clients = clients
        self._connected: set[int] = set()
        self._asked: dict[str, tuple[int, float]] = {}  # id of the question -> node, when
        self._unfit: dict[int, str] = {}  # node -> why it plays no client
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
        for number, reply in self._mail.receive(self._asked).items():
            node, _ = self._asked.pop(number)
            if reply.has_error():
                self._unfit[node] = failure_of(reply.error).reason
                continue
            try:
                self.of[read_identity(reply.content, self._clients)] = node  # the last one to come is the live one
                self._unfit.pop(node, None)
            except EngineError as error:
                self._unfit[node] = str(error)

    def lost(self, client: int) -> str:
        """Why this client has no node, in a sentence."""
        sentence = f"no SuperNode with partition-id={client} is connected."
        if unfit := sorted(set(self._unfit.values())):
            sentence += f" {len(self._unfit)} other(s) cannot take part: {' '.join(unfit)}"
        elif not self._connected:
            sentence += f" {HOW}"
        return sentence

    def _look(self, now: float) -> None:
        connected = self._mail.nodes()
        stale = {number for number, (_, asked) in self._asked.items() if now - asked > _ANSWER_WITHIN}
        self._mail.forget(stale)
        again = {self._asked.pop(number)[0] for number in stale}
        fresh = connected - (self._connected - again)
        self._connected = connected
        self.of = {client: node for client, node in self.of.items() if node in connected}
        self._unfit = {node: reason for node, reason in self._unfit.items() if node in connected}
        if fresh:
            questions = {node: RecordDict() for node in sorted(fresh)}
            sent = self._mail.send(MessageType.QUERY, questions, _ANSWER_WITHIN)
            self._asked |= {number: (node, now) for node, number in sent.items()}
