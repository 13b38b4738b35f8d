"""The primitives, all of them from `cryptography`: X25519, HKDF-SHA256, ChaCha20 as a stream, ChaCha20-Poly1305.

Each key is derived for one purpose, one pair and one round, and encrypts once, so that no nonce is ever used twice.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..errors import FrameError

Whole = npt.NDArray[np.unsignedinteger[Any]]
Total = tuple[Whole, Whole]  # numbers modulo 2^bits, and facts
KEY_BYTES, TAG_BYTES = 32, 16
SELF, PAIR, MAIL = b"self", b"mask", b"mail"  # purposes of keys
_PAIR = struct.Struct("<II")
_ONCE = bytes(12)  # the nonce of a key that encrypts one message


def new_key() -> bytes:
    """A private X25519 key, or any other secret of 32 bytes."""
    return os.urandom(KEY_BYTES)


def public(private: bytes) -> bytes:
    """The public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, others: Mapping[int, bytes], session: bytes, purpose: bytes) -> dict[int, bytes]:
    """The keys that a client shares with others for a purpose. FrameError where a public key is no point to use."""
    mine, found = X25519PrivateKey.from_private_bytes(private), {}
    for one, key in others.items():
        try:
            shared = mine.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError as error:
            raise FrameError(f"The public key of client {one} cannot be used: {error}.") from None
        found[one] = derived(shared, session, purpose)
    return found


def derived(secret: bytes, session: bytes, purpose: bytes) -> bytes:
    """A key for one purpose in one round."""
    return HKDF(SHA256(), KEY_BYTES, salt=session, info=b"adaquantfl " + purpose).derive(secret)


def commitment(session: bytes, seed: bytes) -> bytes:
    """What binds a client to the seed of its own mask and says nothing about it: the seed is random."""
    return hashlib.sha256(b"adaquantfl self" + session + seed).digest()


def sealed(key: bytes, sender: int, receiver: int, text: bytes) -> bytes:
    """A message that only the receiver can read, and only the sender can have written."""
    return ChaCha20Poly1305(_directed(key, sender, receiver)).encrypt(_ONCE, text, None)


def opened(key: bytes, sender: int, receiver: int, data: bytes) -> bytes:
    """The text of such a message; FrameError where it is not the sender's."""
    try:
        return ChaCha20Poly1305(_directed(key, sender, receiver)).decrypt(_ONCE, data, None)
    except InvalidTag:
        raise FrameError(f"The shares that client {sender} sent to client {receiver} are not authentic.") from None


def _directed(key: bytes, sender: int, receiver: int) -> bytes:
    return derived(key, b"", b"from and to" + _PAIR.pack(sender, receiver))


@lru_cache(maxsize=2)
def _zeros(size: int) -> bytes:
    """Kept, because making them takes longer than encrypting them."""
    return bytes(size)


def stream(key: bytes, size: int) -> bytes:
    """Bytes that nobody can tell from random ones without the key."""
    return Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(_zeros(size))


@dataclass(frozen=True)
class Words:
    """What is summed: `count` whole numbers modulo 2^bits, and `facts` of 64 bits each."""

    count: int
    bits: int
    facts: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<u1" if self.bits <= 8 else "<u2" if self.bits <= 16 else "<u4")

    def zeros(self) -> Total:
        """Two empty sums."""
        return np.zeros(self.count, self.dtype), np.zeros(self.facts, "<u8")

    def mask(self, total: Total, key: bytes, plus: bool = True) -> None:
        """Add the key's mask to both, or subtract it. A sum modulo 2^8, 2^16 or 2^32 is one modulo 2^bits."""
        size = self.count * self.dtype.itemsize
        data = stream(key, size + 8 * self.facts)
        masks = np.frombuffer(data, self.dtype, self.count), np.frombuffer(data, "<u8", self.facts, size)
        for into, mask in zip(total, masks, strict=True):
            (np.add if plus else np.subtract)(into, mask, out=into)

    def reduced(self, values: npt.NDArray[Any]) -> Whole:
        """Numbers, which may be signed, modulo 2^bits."""
        kept: Whole = values.astype(self.dtype, copy=False) & self.dtype.type(2**self.bits - 1)
        return kept

    def centred(self, values: Whole) -> npt.NDArray[np.int64]:
        """The signed numbers, of which the half is below 0, that these are modulo 2^bits."""
        half = 2 ** (self.bits - 1)
        signed: npt.NDArray[np.int64] = (values.astype(np.int64) + half) % 2**self.bits - half
        return signed

    def pack(self, values: Whole, facts: Whole) -> tuple[bytes, bytes]:
        """Both as bytes: each number takes its bits, and no more."""
        if self.bits == 8 * self.dtype.itemsize:
            return values.tobytes(), facts.tobytes()
        rows = self.reduced(values)[:, None] >> np.arange(self.bits, dtype=self.dtype) & self.dtype.type(1)
        return np.packbits(rows.astype(np.uint8)).tobytes(), facts.tobytes()

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes of both."""
        return -(-self.count * self.bits // 8), 8 * self.facts

    def unpack(self, values: bytes, facts: bytes) -> Total:
        """Both from bytes of these sizes."""
        told = np.frombuffer(facts, "<u8")
        if self.bits == 8 * self.dtype.itemsize:
            return np.frombuffer(values, self.dtype), told
        rows = np.unpackbits(np.frombuffer(values, np.uint8), count=self.count * self.bits)
        out = np.zeros(self.count, self.dtype)
        for place, row in enumerate(rows.reshape(self.count, self.bits).T):
            out |= row.astype(self.dtype) << self.dtype.type(place)
        return out, told
