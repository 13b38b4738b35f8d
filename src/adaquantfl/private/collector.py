"""The server's side of one masked sum: it relays keys and shares, adds up, and takes off the masks that are left.

It learns the sum over the clients whose numbers arrived. Of each of them it recovers the seed of its own mask; of a
client that dropped out after it had shared its secrets, the pairwise key in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np

from ..errors import EngineError, FrameError
from . import shamir
from .contributor import ADVERTISED, SEALED_BYTES, add_mask, directory, own_mask, pair_keys
from .masks import Whole, Words, commitment, public
from .neighbours import degree, ring
from .packet import ADVERTISE, MAILBOX, MASKED, REVEALED, SHARES, SURVIVORS, Packet, numbers, pieces

STEPS = {ADVERTISE: "keys", SHARES: "shares", MASKED: "masked update", REVEALED: "revealed shares"}
_NEXT = dict(pairwise(STEPS))


Heard = dict[int, tuple[bytes, ...]]  # client -> the parts of its message


@dataclass(frozen=True)
class Sum:
    """A sum without masks, of these clients."""

    values: Whole
    facts: Whole
    clients: tuple[int, ...]


@dataclass
class Collector:
    """One masked sum.

    Attributes:
        session: of the round.
        words: what is summed.
        least: how many clients the sum must have.
        colluding: the share of clients that may collude with the server.
        step: the kind of message that is awaited.
        heard: what the clients sent in this step.
        sum: the result, once there is one.
    """

    session: bytes
    words: Words
    least: int
    colluding: float
    step: int = ADVERTISE
    heard: Heard = field(default_factory=dict)
    sum: Sum | None = None
    asked: frozenset[int] | None = None  # None: everybody may advertise keys
    keys: Heard = field(default_factory=dict)
    neighbours: dict[int, list[int]] = field(default_factory=dict)
    threshold: int = 0
    shared: tuple[int, ...] = ()
    alive: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._total = self.words.zeros()

    def receive(self, client: int, data: bytes) -> None:
        """Take a client's message of the present step. FrameError where it cannot be used."""
        if client in self.heard or (self.asked is not None and client not in self.asked):
            raise FrameError("It has answered in this step already, or it dropped out before.")
        parts = Packet.unpack(data).of(self.step, self.session, *self._sizes(client))
        if self.step == MASKED:
            for into, told in zip(self._total, self.words.unpack(*parts), strict=True):
                np.add(into, told, out=into)
            parts = ()
        self.heard[client] = parts

    def advance(self) -> dict[int, bytes]:
        """End the step; return the messages of the next one, or none where the sum is known. EngineError: too few."""
        clients = sorted(self.heard)
        if len(clients) < self.least:
            raise EngineError(
                f"{len(clients)} clients sent their {STEPS[self.step]}, and the sum needs {self.least}: one of "
                "fewer is not opened. Raise private.dropouts where clients drop out more often."
            )
        heard, self.heard = self.heard, {}
        ends = {ADVERTISE: self._introduce, SHARES: self._forward, MASKED: self._ask, REVEALED: self._open}
        messages = ends[self.step](heard)
        if messages:
            self.step, self.asked = _NEXT[self.step], frozenset(messages)
        return messages

    def _introduce(self, heard: Heard) -> dict[int, bytes]:
        self.keys, n = heard, len(heard)
        k, self.threshold = degree(n, n - self.least, int(self.colluding * n))
        self.neighbours = ring(sorted(heard), k)
        return {
            client: directory([(one, heard[one]) for one in near], self.threshold, self.session)
            for client, near in self.neighbours.items()
        }

    def _forward(self, heard: Heard) -> dict[int, bytes]:
        self.shared = tuple(sorted(heard))
        boxes: dict[int, dict[int, bytes]] = {client: {} for client in heard}
        for sender, (data,) in heard.items():
            near = self.neighbours[sender]
            for one, box in zip(near, pieces(data, len(near), SEALED_BYTES), strict=True):
                if one in boxes:
                    boxes[one][sender] = box
        return {
            client: Packet(
                MAILBOX, self.session, (numbers(sorted(mail)), b"".join(mail[s] for s in sorted(mail)))
            ).pack()
            for client, mail in boxes.items()
        }

    def _ask(self, alive: Heard) -> dict[int, bytes]:
        self.alive = frozenset(alive)
        return {
            client: Packet(SURVIVORS, self.session, tuple(numbers(part) for part in self._asked_of(client))).pack()
            for client in sorted(alive)
        }

    def _asked_of(self, client: int) -> tuple[list[int], list[int]]:
        """The neighbours in the sum, and those that dropped out after they had shared their secrets."""
        near = [one for one in self.neighbours[client] if one in self.shared]
        return [one for one in near if one in self.alive], [one for one in near if one not in self.alive]

    def _open(self, heard: Heard) -> dict[int, bytes]:
        """Recover the secrets that are needed, and take the masks off."""
        shares: dict[int, dict[int, bytes]] = {client: {} for client in self.shared}
        for teller, (data,) in heard.items():
            about = [one for part in self._asked_of(teller) for one in part]
            for one, share in zip(about, pieces(data, len(about), shamir.SHARE_BYTES), strict=True):
                shares[one][teller + 1] = share
        values, facts = self._total
        for client in self.shared:
            _, mask_key, committed = self.keys[client]
            if client in self.alive:
                seed = self._recovered(client, shares, partial(self._is_seed, committed))
                for into, mask in zip((values, facts), own_mask(seed, self.session, self.words), strict=True):
                    np.subtract(into, mask, out=into)
                continue
            if not self.alive.intersection(self.neighbours[client]):
                continue
            private = self._recovered(client, shares, partial(_is_private, mask_key))
            others = {one: self.keys[one][1] for one in self.alive.intersection(self.neighbours[client])}
            for one, key in pair_keys(private, others, self.session).items():
                add_mask(values, facts, self.words, key, plus=one < client)  # as the client itself would have
        self.sum = Sum(self.words.reduced(values), facts, tuple(sorted(self.alive)))
        return {}

    def _recovered(self, client: int, shares: dict[int, dict[int, bytes]], right: Callable[[bytes], bool]) -> bytes:
        secret = shamir.recover(shares[client], self.threshold, right)
        if secret is None:
            raise EngineError(
                f"The mask of client {client} cannot be taken off: of {len(shares[client])} shares, fewer than "
                f"{self.threshold} are right. The round is lost; nothing of it was learnt."
            )
        return secret

    def _is_seed(self, committed: bytes, secret: bytes) -> bool:
        return commitment(secret, self.session) == committed

    def _sizes(self, client: int) -> tuple[int | None, ...]:
        """The bytes of each part of the message that is due."""
        if self.step == ADVERTISE:
            return ADVERTISED
        if self.step == SHARES:
            return (len(self.neighbours[client]) * SEALED_BYTES,)
        if self.step == MASKED:
            return self.words.sizes
        return (sum(map(len, self._asked_of(client))) * shamir.SHARE_BYTES,)


def _is_private(known: bytes, secret: bytes) -> bool:
    return public(secret) == known
