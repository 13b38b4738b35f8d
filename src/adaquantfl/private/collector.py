"""The server's side of one masked sum: it relays keys and shares, adds up, and takes off the masks that are left.

It learns the sum over the clients whose numbers arrived. Of each of them it recovers the seed of its own mask; of a
client that dropped out after it had shared its secrets, the pairwise key in its place.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from ..errors import EngineError, FrameError
from . import shamir
from .contributor import ADVERTISED, SEALED_BYTES
from .masks import PAIR, SELF, Total, Words, agreed, commitment, derived, public
from .neighbours import degree, ring
from .packet import ADVERTISE, KEYS, MAILBOX, MASKED, REVEALED, SHARES, SURVIVORS, Packet, numbers, pieces

STEPS = {ADVERTISE: "keys", SHARES: "shares", MASKED: "masked update", REVEALED: "revealed shares"}
Heard = dict[int, tuple[bytes, ...]]  # client -> the parts of its message


@dataclass
class Collector:
    """One masked sum.

    Attributes:
        words: what is summed.
        asked: who may answer in this step.
        least: how many clients the sum must have.
        colluding: the share of clients that may collude with the server.
        session: what tells the messages of one round from all others.
        step: the kind of message that is awaited.
        heard: what the clients sent in this step.
        sum: the result without masks, once there is one.
        alive: the clients in the sum, once their numbers are in.
    """

    words: Words
    asked: Collection[int]
    least: int
    colluding: float
    session: bytes = field(default_factory=partial(secrets.token_bytes, 16))
    step: int = ADVERTISE
    heard: Heard = field(default_factory=dict)
    sum: Total | None = None
    alive: Heard = field(default_factory=dict)
    keys: Heard = field(default_factory=dict)
    neighbours: dict[int, list[int]] = field(default_factory=dict)
    threshold: int = 0
    shared: Heard = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._total = self.words.zeros()

    def receive(self, client: int, data: bytes) -> None:
        """Take a client's message of the present step. FrameError where it cannot be used."""
        if client in self.heard or client not in self.asked:
            raise FrameError("It was not asked in this step: it has answered already, or it dropped out before.")
        parts = Packet.unpack(data).of(self.step, self.session, *self._sizes(client))
        if self.step == MASKED:
            for into, told in zip(self._total, self.words.unpack(*parts), strict=True):
                into += told
            parts = ()
        self.heard[client] = parts

    def advance(self) -> dict[int, bytes]:
        """End the step; return the messages of the next one, or none where the sum is known. EngineError: too few."""
        if len(self.heard) < self.least:
            raise EngineError(
                f"{len(self.heard)} clients sent their {STEPS[self.step]}, and the sum needs {self.least}: one of "
                "fewer is not opened. Raise private.dropouts where clients drop out more often."
            )
        heard, self.heard = dict(sorted(self.heard.items())), {}
        if self.step == REVEALED:
            self._open(heard)
            return {}
        kind, parts = {ADVERTISE: self._introduce, SHARES: self._forward, MASKED: self._ask}[self.step](heard)
        self.step, self.asked = kind + 1, parts.keys()
        return {client: Packet(kind, self.session, told).pack() for client, told in parts.items()}

    def _introduce(self, heard: Heard) -> tuple[int, Heard]:
        self.keys, n = heard, len(heard)
        k, self.threshold = degree(n, n - self.least, int(self.colluding * n))
        self.neighbours = ring(list(heard), k)
        both = {one: mail + mask for one, (mail, mask, _) in heard.items()}
        return KEYS, {
            client: (numbers(near), numbers([self.threshold]), b"".join(both[one] for one in near))
            for client, near in self.neighbours.items()
        }

    def _forward(self, heard: Heard) -> tuple[int, Heard]:
        self.shared = heard
        boxes: dict[int, dict[int, bytes]] = {client: {} for client in heard}
        for sender, (data,) in heard.items():
            near = self.neighbours[sender]
            for one, box in zip(near, pieces(data, len(near), SEALED_BYTES), strict=True):
                if one in boxes:
                    boxes[one][sender] = box
        return MAILBOX, {client: (numbers(mail), b"".join(mail.values())) for client, mail in boxes.items()}

    def _ask(self, heard: Heard) -> tuple[int, Heard]:
        self.alive = heard
        return SURVIVORS, {client: tuple(map(numbers, self._asked_of(client))) for client in heard}

    def _asked_of(self, client: int) -> tuple[list[int], list[int]]:
        """The neighbours in the sum, and those that dropped out after they had shared their secrets."""
        near = [one for one in self.neighbours[client] if one in self.shared]
        return [one for one in near if one in self.alive], [one for one in near if one not in self.alive]

    def _open(self, heard: Heard) -> None:
        """Recover the secrets that are needed, and take the masks off."""
        shares: dict[int, dict[int, bytes]] = {client: {} for client in self.shared}
        for teller, (data,) in heard.items():
            about = [one for part in self._asked_of(teller) for one in part]
            for one, share in zip(about, pieces(data, len(about), shamir.SHARE_BYTES), strict=True):
                shares[one][teller + 1] = share
        for client in self.shared:
            _, mask_key, committed = self.keys[client]
            if client in self.alive:
                seed = self._recovered(client, shares, partial(commitment, self.session), committed)
                self.words.mask(self._total, derived(seed, self.session, SELF), plus=False)
            elif others := {one: self.keys[one][1] for one in self.neighbours[client] if one in self.alive}:
                private = self._recovered(client, shares, public, mask_key)
                for one, key in agreed(private, others, self.session, PAIR).items():
                    self.words.mask(self._total, key, plus=one < client)  # as the client itself would have
        values, facts = self._total
        self.sum = self.words.reduced(values), facts

    def _recovered(
        self, client: int, shares: dict[int, dict[int, bytes]], public_of: Callable[[bytes], bytes], known: bytes
    ) -> bytes:
        """The secret of a client. It is the right one where what is public of it is what the client told."""
        secret = shamir.recover(shares[client], self.threshold, lambda one: public_of(one) == known)
        if secret is None:
            raise EngineError(
                f"The mask of client {client} cannot be taken off: of {len(shares[client])} shares, fewer than "
                f"{self.threshold} are right. The round is lost; nothing of it was learnt."
            )
        return secret

    def _sizes(self, client: int) -> tuple[int | None, ...]:
        """The bytes of each part of the message that is due."""
        if self.step == ADVERTISE:
            return ADVERTISED
        if self.step == SHARES:
            return (len(self.neighbours[client]) * SEALED_BYTES,)
        if self.step == MASKED:
            return self.words.sizes
        return (sum(map(len, self._asked_of(client))) * shamir.SHARE_BYTES,)
