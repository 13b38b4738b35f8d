"""Frames carry the standard CRC-32."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from adaquantfl import core


@pytest.mark.parametrize("vectors", [0, 1, 2])
def test_it_is_the_standard_crc32_with_any_vectors(vectors: int, rng: np.random.Generator) -> None:
    core.use(vectors)
    try:
        for length in (0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 100_003):
            data = rng.bytes(length)
            assert core.crc32(data) == core.crc32(memoryview(data)) == zlib.crc32(data)
            assert core.crc32(data[5:], core.crc32(data[:5])) == zlib.crc32(data)
        assert core.crc32(b"123456789") == 0xCBF43926
    finally:
        core.use(-1)
