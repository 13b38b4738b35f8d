"""Counter-based randomness: a pure function of (run seed, round, client, element index).

`stream_key` hashes the first three into 64 bits. A Weyl step and two multiplies then turn a key and an index into 31
uniform bits. All of it is 32-bit arithmetic, so that it vectorises.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import numpy.typing as npt

from ..errors import QuantizeError


def stream_key(seed: int, round: int, client: int) -> int:
    """Return the 64-bit key of one client's stream in one round, a hash, so that neighbouring seeds share nothing.

    >>> hex(stream_key(seed=1, round=2, client=3))
    '0x546eb028ab4d0fd8'
    >>> stream_key(1, 2, 3) == stream_key(1, 3, 2)
    False
    """
    try:
        packed = struct.pack("<qqq", seed, round, client)
    except (struct.error, TypeError) as error:  # TypeError: of an array
        raise QuantizeError(
            f"stream_key(seed={seed!r}, round={round!r}, client={client!r}): all three must be whole numbers "
            "that fit in 64 bits."
        ) from error
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8, person=b"adaquantfl").digest(), "little")


def uniforms(key: int, count: int) -> npt.NDArray[np.float64]:
    """The random numbers of the first elements of a stream, from 0 to 1: what the core draws, for whoever wants to see.

    >>> uniforms(key=7, count=2).round(4).tolist()
    [0.5803, 0.2494]
    """
    whole = checked_key(key)
    low, high = np.uint32(whole & 0xFFFFFFFF), np.uint32(whole >> 32)
    x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9) + low  # 2^32 / golden ratio: neighbours lie far apart
    x = (x ^ x >> np.uint32(16)) * np.uint32(0x7FEB352D)
    # The key's high half enters between the multiplies: entering with the low half it would only shift the sequence.
    x = (x ^ x >> np.uint32(15) ^ high) * np.uint32(0x846CA68B)
    return ((x ^ x >> np.uint32(16)) >> np.uint32(1)).astype(np.float64) * 2.0**-31


def checked_key(key: int) -> int:
    """The key, if it is one."""
    if not isinstance(key, int | np.integer) or not 0 <= int(key) < 2**64:
        raise QuantizeError(
            f"The key {key!r} is not a 64-bit whole number. Make one with aq.stream_key(seed, round, client)."
        )
    return int(key)
