"""Counter-based randomness: a pure function of (run seed, round, client, element index).

`stream_key` hashes the first three into 64 bits. `kernels.draw31` turns a key and an index into 31 uniform bits with a
Weyl step and two multiplies. All of it is 32-bit arithmetic, so that it vectorises.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from ..errors import QuantizeError


def stream_key(seed: int, round: int, client: int) -> int:
    """The 64-bit key of one client's stream in one round: a hash, so that neighbouring seeds share nothing.

    >>> hex(stream_key(seed=1, round=2, client=3))
    '0x546eb028ab4d0fd8'
    >>> stream_key(1, 2, 3) == stream_key(1, 3, 2)
    False
    """
    try:
        packed = struct.pack("<qqq", seed, round, client)
    except struct.error as error:
        raise QuantizeError(
            f"stream_key(seed={seed!r}, round={round!r}, client={client!r}): all three must be whole numbers "
            "that fit in 64 bits."
        ) from error
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8, person=b"adaquantfl").digest(), "little")


def split_key(key: int) -> tuple[np.uint32, np.uint32]:
    """The two halves of a key, low and high, as the kernels take them."""
    if not isinstance(key, int | np.integer) or not 0 <= int(key) < 2**64:
        raise QuantizeError(
            f"The key {key!r} is not a 64-bit whole number. Make one with aq.stream_key(seed, round, client)."
        )
    return np.uint32(int(key) & 0xFFFFFFFF), np.uint32(int(key) >> 32)
