"""A client's side of one masked sum: three messages in, four out.

Its numbers are hidden by one mask of its own and one for each neighbour, which the neighbour takes away again. Of each
mask, one secret is shared among the neighbours. A client reveals a share of a neighbour's own mask or of its pairwise
key, never of both: with both, the server could take all masks off.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import FrameError
from . import masks, shamir
from .masks import KEY_BYTES, MAIL, PAIR, SELF, Whole, Words, agreed, new_key, public
from .packet import ADVERTISE, KEYS, MAILBOX, MASKED, REVEALED, SHARES, Packet, pieces, read_numbers

SEALED_BYTES = 2 * shamir.SHARE_BYTES + masks.TAG_BYTES
ADVERTISED = (KEY_BYTES, KEY_BYTES, KEY_BYTES)  # two public keys and a commitment


@dataclass
class Contributor:
    """What a client remembers in the course of one sum: its numbers, its secrets, and what it was sent.

    Attributes:
        number: the client's.
        session: of the round.
        bits: of a number.
        values: its whole numbers, until they are sent.
        facts: likewise, of 64 bits each.
        mail_key, mask_key: private keys of this round, for the shares and for the masks.
        seed: of its own mask.
        keys: the message with the neighbours' public keys.
        mailbox: the message with the encrypted shares that neighbours made for this client.
        done: the kind of the last message that it sent.
    """

    number: int
    session: bytes
    bits: int
    values: Whole
    facts: Whole
    mail_key: bytes = field(default_factory=new_key)
    mask_key: bytes = field(default_factory=new_key)
    seed: bytes = field(default_factory=new_key)
    keys: bytes = b""
    mailbox: bytes = b""
    done: int = 0

    def advertise(self) -> bytes:
        """The first message."""
        return self._sent(
            ADVERTISE, public(self.mail_key), public(self.mask_key), masks.commitment(self.session, self.seed)
        )

    def answer(self, message: bytes) -> bytes:
        """The reply to the server's next message. FrameError where it is another one, or asks for too much."""
        kind = Packet.unpack(message).kind
        if kind != self.done + 1 or kind > REVEALED:
            raise FrameError(f"Message {kind} of a private round is not due: this client has sent {self.done}.")
        return {KEYS: self._share, MAILBOX: self._mask}.get(kind, self._reveal)(message)

    def _share(self, message: bytes) -> bytes:
        """Take the neighbours' keys; share the two secrets among them."""
        self.keys = message
        threshold, keys = self._neighbours()
        places = [one + 1 for one in keys]
        of_keys, of_seeds = (shamir.split(one, places, threshold) for one in (self.mask_key, self.seed))
        mail = agreed(self.mail_key, {one: key[:KEY_BYTES] for one, key in keys.items()}, self.session, MAIL)
        boxes = [
            masks.sealed(key, self.number, one, of_key + of_seed)
            for (one, key), of_key, of_seed in zip(mail.items(), of_keys, of_seeds, strict=True)
        ]
        return self._sent(SHARES, b"".join(boxes))

    def _mask(self, message: bytes) -> bytes:
        """Take the neighbours' shares; send the numbers under the masks of those who are still there.

        A pair's mask is added by the client with the larger number, and subtracted by the other.
        """
        self.mailbox = message
        (threshold, keys), senders, words = self._neighbours(), self._boxes(), self.words
        if not senders.keys() <= keys.keys() or len(senders) < max(2, threshold):
            raise FrameError(f"Shares came of {len(senders)} neighbours; at least {max(2, threshold)} are needed.")
        hidden = self.values.copy(), self.facts.copy()
        words.mask(hidden, masks.derived(self.seed, self.session, SELF))
        others = {one: keys[one][KEY_BYTES:] for one in senders}
        for one, key in agreed(self.mask_key, others, self.session, PAIR).items():
            words.mask(hidden, key, plus=self.number > one)
        self.values, self.facts = Words(0, self.bits, 0).zeros()
        return self._sent(MASKED, *words.pack(*hidden))

    def _reveal(self, message: bytes) -> bytes:
        """Reveal one share of each neighbour, and forget the secrets."""
        alive, gone = map(read_numbers, Packet.unpack(message).of(self.done + 1, self.session, None, None))
        (threshold, keys), boxes = self._neighbours(), self._boxes()
        if set(alive) & set(gone):
            raise FrameError("The server asks for both secrets of a client, which would show its update.")
        if not {*alive, *gone} <= boxes.keys():
            raise FrameError("The server asks for shares of clients that are no neighbours.")
        if len(alive) < threshold:
            raise FrameError(f"Only {len(alive)} neighbours are in the sum; at least {threshold} must be.")
        asked = {one: keys[one][:KEY_BYTES] for one in (*alive, *gone)}
        mail = agreed(self.mail_key, asked, self.session, MAIL)
        both = {one: masks.opened(key, one, self.number, boxes[one]) for one, key in mail.items()}
        self.mail_key = self.mask_key = self.seed = self.mailbox = b""
        shares = [both[one][shamir.SHARE_BYTES :] for one in alive] + [both[one][: shamir.SHARE_BYTES] for one in gone]
        return self._sent(REVEALED, b"".join(shares))

    @property
    def words(self) -> Words:
        """What is summed."""
        return Words(len(self.values), self.bits, len(self.facts))

    def _neighbours(self) -> tuple[int, dict[int, bytes]]:
        """How many shares give a secret, and the two public keys of each neighbour."""
        told, thresholds, keys = Packet.unpack(self.keys).of(KEYS, self.session, None, 4, None)
        found, (threshold,) = read_numbers(told), read_numbers(thresholds)
        if self.number in found or not 1 <= threshold <= len(found) or len(found) < 2:
            raise FrameError(f"{len(found)} neighbours and a threshold of {threshold} hide nothing.")
        each = pieces(keys, len(found), 2 * KEY_BYTES)
        if len(set(each)) != len(each):
            raise FrameError("Two neighbours have the same keys.")
        return threshold, dict(zip(found, each, strict=True))

    def _boxes(self) -> dict[int, bytes]:
        """The encrypted shares of each neighbour that sent some."""
        told, boxes = Packet.unpack(self.mailbox).of(MAILBOX, self.session, None, None)
        senders = read_numbers(told)
        return dict(zip(senders, pieces(boxes, len(senders), SEALED_BYTES), strict=True))

    def _sent(self, kind: int, *parts: bytes) -> bytes:
        self.done = kind
        return Packet(kind, self.session, parts).pack()
