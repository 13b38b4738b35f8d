"""Frames carry the standard CRC-32, whoever computes it."""

from __future__ import annotations

import subprocess
import sys
import zlib

import numpy as np

import adaquantfl as aq
from adaquantfl.codecs.checksum import crc32

WITHOUT_ISAL = """
import sys
sys.modules["isal"] = None
import numpy as np, adaquantfl as aq
from adaquantfl.codecs import checksum
assert checksum.crc32.__module__ == "zlib"
print(aq.compress(np.arange(9, dtype=np.float32), 4, 1).hex())
"""


def test_it_is_the_standard_crc32(rng: np.random.Generator) -> None:
    for length in (0, 1, 15, 16, 1000, 100_003):
        data = rng.bytes(length)
        assert crc32(data) == crc32(memoryview(data)) == zlib.crc32(data)
    assert crc32(b"123456789") == 0xCBF43926


def test_frames_are_the_same_without_isal() -> None:
    alone = subprocess.run([sys.executable, "-c", WITHOUT_ISAL], capture_output=True, text=True, check=True)
    assert bytes.fromhex(alone.stdout.strip()) == aq.compress(np.arange(9, dtype=np.float32), 4, 1)
