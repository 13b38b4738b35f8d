"""A client's side of one masked sum: four messages in, four out, each a pure step on what the client remembers.

Its numbers are hidden by one mask of its own and one for each neighbour, which the neighbour takes away again. Of each
mask, one secret is shared among the neighbours. A client reveals a share of a neighbour's own mask or of its pairwise
key, never of both: with both, the server could take all masks off.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..errors import FrameError
from . import shamir
from .masks import KEY_BYTES, TAG_BYTES, Whole, Words, agreed, commitment, derived, new_key, opened, public, sealed
from .packet import (
    ADVERTISE,
    KEYS,
    MAILBOX,
    MASKED,
    REVEALED,
    SHARES,
    SURVIVORS,
    Packet,
    numbers,
    pieces,
    read_numbers,
)

SEALED_BYTES = 2 * shamir.SHARE_BYTES + TAG_BYTES
ADVERTISED = (KEY_BYTES, KEY_BYTES, KEY_BYTES)  # two public keys and a commitment
_MASK, _MAIL, _SELF = b"mask", b"mail", b"self"
_BY_CLIENT = ("mail", "public_keys", "mailbox")


@dataclass
class Contributor:
    """What a client remembers in the course of one sum.

    Attributes:
        number: the client's.
        session: of the round.
        mail_key, mask_key: private keys of this round, for the shares and for the masks.
        seed: of its own mask.
        mail: the keys for the shares, one for each neighbour.
        public_keys: of the neighbours, for the masks.
        mailbox: the encrypted shares that neighbours made for this client.
        threshold: how many shares give a secret.
        done: the kind of the last message that it sent.
    """

    number: int
    session: bytes
    mail_key: bytes = field(default_factory=new_key)
    mask_key: bytes = field(default_factory=new_key)
    seed: bytes = field(default_factory=new_key)
    mail: dict[int, bytes] = field(default_factory=dict)
    public_keys: dict[int, bytes] = field(default_factory=dict)
    mailbox: dict[int, bytes] = field(default_factory=dict)
    threshold: int = 0
    done: int = 0

    def advertise(self) -> bytes:
        """The first message."""
        return self._sent(ADVERTISE, public(self.mail_key), public(self.mask_key), commitment(self.seed, self.session))

    def share(self, message: bytes) -> bytes:
        """Take the neighbours' keys; share the two secrets among them."""
        told, thresholds, keys = self._read(message, KEYS, ADVERTISE, None, 4, None)
        found, (self.threshold,) = read_numbers(told), read_numbers(thresholds)
        if self.number in found or not 1 <= self.threshold <= len(found) or len(found) < 2:
            raise FrameError(f"{len(found)} neighbours and a threshold of {self.threshold} hide nothing.")
        each = pieces(keys, len(found), 2 * KEY_BYTES)
        if len(set(each)) != len(each):
            raise FrameError("Two neighbours have the same keys.")
        self.public_keys = {one: key[KEY_BYTES:] for one, key in zip(found, each, strict=True)}
        mail_keys = {one: key[:KEY_BYTES] for one, key in zip(found, each, strict=True)}
        self.mail, self.mail_key = agreed(self.mail_key, mail_keys, self.session, _MAIL), b""
        places = [one + 1 for one in found]
        of_key = shamir.split(self.mask_key, places, self.threshold)
        of_seed = shamir.split(self.seed, places, self.threshold)
        boxes = [
            sealed(self.mail[one], self.number, one, mine + own)
            for one, mine, own in zip(found, of_key, of_seed, strict=True)
        ]
        return self._sent(SHARES, b"".join(boxes))

    def mask(self, message: bytes, words: Words, values: Whole, facts: Whole) -> bytes:
        """Take the neighbours' shares; send the numbers under the masks of those who are still there.

        A pair's mask is added by the client with the larger number, and subtracted by the other.
        """
        told, boxes = self._read(message, MAILBOX, SHARES, None, None)
        senders = read_numbers(told)
        if not set(senders) <= self.mail.keys() or len(senders) < max(2, self.threshold):
            raise FrameError(f"Shares came of {len(senders)} neighbours; at least {max(2, self.threshold)} are needed.")
        self.mailbox = dict(zip(senders, pieces(boxes, len(senders), SEALED_BYTES), strict=True))
        hidden, told_facts = own_mask(self.seed, self.session, words)
        hidden, told_facts = hidden + values, told_facts + facts
        others = {one: self.public_keys[one] for one in senders}
        for one, key in pair_keys(self.mask_key, others, self.session).items():
            add_mask(hidden, told_facts, words, key, self.number > one)
        return self._sent(MASKED, *words.pack(hidden, told_facts))

    def reveal(self, message: bytes) -> bytes:
        """Reveal one share of each neighbour, and forget everything."""
        alive, gone = map(read_numbers, self._read(message, SURVIVORS, MASKED, None, None))
        if set(alive) & set(gone):
            raise FrameError("The server asks for both secrets of a client, which would show its update.")
        if not {*alive, *gone} <= self.mailbox.keys():
            raise FrameError("The server asks for shares of clients that are no neighbours.")
        if len(alive) < self.threshold:
            raise FrameError(f"Only {len(alive)} neighbours are in the sum; at least {self.threshold} must be.")
        shares = [self._opened(one)[1] for one in alive] + [self._opened(one)[0] for one in gone]
        self.mask_key = self.seed = b""
        self.mail.clear()
        self.mailbox.clear()
        return self._sent(REVEALED, b"".join(shares))

    def tree(self) -> dict[str, Any]:
        """All of it as a plain tree, for a client that forgets everything between two messages."""
        return asdict(self)

    @staticmethod
    def of(tree: dict[str, Any]) -> Contributor:
        """The way back."""
        by_client = {name: {int(one): value for one, value in tree[name].items()} for name in _BY_CLIENT}
        return Contributor(**{**tree, **by_client})

    def _read(self, message: bytes, kind: int, after: int, *sizes: int | None) -> tuple[bytes, ...]:
        """The parts of the message that is due; a second one of a kind is refused, whatever it says."""
        if self.done != after:
            raise FrameError(f"Message {kind} of a private round is not due: this client has sent {self.done}.")
        return Packet.unpack(message).of(kind, self.session, *sizes)

    def _sent(self, kind: int, *parts: bytes) -> bytes:
        self.done = kind
        return Packet(kind, self.session, parts).pack()

    def _opened(self, one: int) -> tuple[bytes, bytes]:
        """The shares of a neighbour's pairwise key, and of the seed of its own mask."""
        text = opened(self.mail[one], one, self.number, self.mailbox[one])
        return text[: shamir.SHARE_BYTES], text[shamir.SHARE_BYTES :]


def own_mask(seed: bytes, session: bytes, words: Words) -> tuple[Whole, Whole]:
    """A client's own mask."""
    return words.mask(derived(seed, session, _SELF))


def pair_keys(private: bytes, others: Mapping[int, bytes], session: bytes) -> dict[int, bytes]:
    """The keys of the masks that a client has with others. private: its key; others: their public ones."""
    return agreed(private, others, session, _MASK)


def add_mask(values: Whole, facts: Whole, words: Words, key: bytes, plus: bool) -> None:
    """Add a pair's mask to both, or subtract it."""
    for into, mask in zip((values, facts), words.mask(key), strict=True):
        (np.add if plus else np.subtract)(into, mask, out=into)


def new_session() -> bytes:
    """What tells the messages of one round from all others."""
    return secrets.token_bytes(16)


def directory(keys: Sequence[tuple[int, tuple[bytes, ...]]], threshold: int, session: bytes) -> bytes:
    """The KEYS message that tells a client of its neighbours."""
    joined = b"".join(mail + mask for _, (mail, mask, _) in keys)
    return Packet(KEYS, session, (numbers(one for one, _ in keys), numbers([threshold]), joined)).pack()
