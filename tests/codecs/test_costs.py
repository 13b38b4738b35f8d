"""What reading a frame may take, whatever its sender writes: docs/security.md has the table that this holds."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.accumulator import check_frame
from adaquantfl.codecs.frame import Header, framed
from adaquantfl.codecs.varints import varint
from support.costs import allowed, most_taken
from support.frames import sealed

D = 100_000


def sparse(count: int, body: bytes, dimension: int = D) -> bytes:
    header = Header(0, 1, 65_535, dimension, None, np.ones(1, dtype=np.float32))
    return framed(header, bytes([32]) + varint(count) + body)


def hostile() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(D).astype(np.float32)
    noise = [aq.compress(x, 65_535, 1, codec) for codec in ("fixed", "sparse", "dense")]
    cases = dict(zip(("fixed", "sparse", "dense"), noise, strict=True))
    cases |= {
        f"{name}, most levels": aq.compress(x, 65_535, 1, "dense", quantizer=name)
        for name in ("centroid", "lattice", "rotated", "fitted")
    }
    cases["as many segments as elements"] = aq.compress(x, 1, 1, "fixed", np.ones(D, dtype=np.int64))
    cases["a few bytes for many zeros"] = aq.compress(np.zeros(D, np.float32), 1, 1)
    cases["a count that the body cannot hold"] = sparse(D, bytes(100))
    cases["as many as the body might hold"] = sparse(400, bytes(100))
    large = bytearray(aq.compress(np.zeros(D, np.float32), 1, 1))
    large[16:24] = struct.pack("<Q", 2**32)
    cases["2^32 elements"] = sealed(large)
    steps = bytearray(aq.compress(x[:256], 65_535, 1, quantizer="centroid"))
    cases["a short vector with a long table"] = bytes(steps)
    return cases


HOSTILE = hostile()


@pytest.mark.parametrize("case", HOSTILE)
def test_a_frame_takes_no_more_memory_than_the_table_says(case: str) -> None:
    frame = HOSTILE[case]
    dimension = 256 if "short vector" in case else D
    total = aq.Accumulator(dimension)
    reads: tuple[Callable[[], object], ...] = (
        lambda: aq.decode(frame, dimension),
        lambda: check_frame(frame, 1.0, dimension),
        lambda: total.add(frame, 1e-3),
        lambda: aq.decode(frame, dimension).dequantize(),
    )
    for read in reads:
        assert most_taken(read) <= allowed("a frame", len(frame), dimension), case
