"""Shamir's secret sharing (1979) of 32 bytes: any `threshold` of the shares give the secret, fewer say nothing of it.

The secret is the constant of a random polynomial over the integers modulo 2^256 + 297, which is prime; a share is the
polynomial's value at its holder's place.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice

PRIME = 2**256 + 297
SECRET_BYTES, SHARE_BYTES = 32, 33
_MOST_TRIES = 200  # of combinations, where some shares are false


def split(secret: bytes, places: Sequence[int], threshold: int) -> list[bytes]:
    """A share for each place, which is a number from 1."""
    terms = [int.from_bytes(secret, "little"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    out = []
    for place in places:
        value = 0
        for term in reversed(terms):
            value = (value * place + term) % PRIME
        out.append(value.to_bytes(SHARE_BYTES, "little"))
    return out


def join(shares: Mapping[int, bytes]) -> bytes | None:
    """The secret that these shares give, all of which are used; None where it is none: then a share is false."""
    total = 0
    for place, share in shares.items():
        top = bottom = 1
        for other in shares:
            if other != place:
                top, bottom = top * other % PRIME, bottom * (other - place) % PRIME
        total += int.from_bytes(share, "little") * top * pow(bottom, -1, PRIME)
    total %= PRIME
    return total.to_bytes(SHARE_BYTES, "little")[:SECRET_BYTES] if total < 2 ** (8 * SECRET_BYTES) else None


def recover(shares: Mapping[int, bytes], threshold: int, right: Callable[[bytes], bool]) -> bytes | None:
    """The secret that is right, although some shares may be false; None where none is found."""
    for chosen in _choices(sorted(shares), threshold):
        secret = join({place: shares[place] for place in chosen})
        if secret is not None and right(secret):
            return secret
    return None


def _choices(places: Sequence[int], threshold: int) -> Iterator[Sequence[int]]:
    """First neighbours on a ring, which get around one false share, or several side by side; then any."""
    if len(places) < threshold:
        return
    ring = [*places, *places]
    yield from (ring[start : start + threshold] for start in range(len(places)))
    yield from islice(combinations(reversed(places), threshold), _MOST_TRIES)
