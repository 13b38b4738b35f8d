"""Lossless patches of bfloat16 weights, beside XOR and zstd: bits for each changed weight, and speed on one core.

    python benchmarks/patches.py --out evidence/records/benchmarks/patches.json

A step moves a share of the weights: 19 of 20 of those to a neighbouring number, the rest one further. Speed is bytes of
weights by seconds of processor time, the best of several attempts, so that other work on the machine counts little.
XOR and zstd need the package zstandard; without it their columns are empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import adaquantfl as aq
from common import options, record

ELEMENTS = 32_000_000
SHARES = (0.01, 0.04)
ATTEMPTS = 7


def weights(share: float) -> tuple[np.ndarray, np.ndarray]:
    """bfloat16 weights as bit patterns, before and after a step."""
    rng = np.random.default_rng(0)
    old = (rng.normal(0, 0.02, ELEMENTS).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    far = np.where(rng.random(ELEMENTS) < 0.95, 1, 2) * rng.choice([-1, 1], ELEMENTS)
    return old, np.where(rng.random(ELEMENTS) < share, old + far, old).astype(np.uint16)


def speed(work: Callable[[], Any]) -> float:
    """GB of weights a second."""
    best = float("inf")
    for _ in range(ATTEMPTS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return 2 * ELEMENTS / best / 1e9


def ours(old: np.ndarray, new: np.ndarray) -> dict[str, float]:
    forth, back, held = aq.diff(old, new), aq.diff(new, old), old.copy()

    def in_place() -> None:
        aq.patch(held, forth, out=held)
        aq.patch(held, back, out=held)

    in_place()  # compiles
    assert np.array_equal(aq.patch(old, forth), new)
    return {
        "bits": 8 * len(forth) / np.count_nonzero(old != new),
        "diff": speed(lambda: aq.diff(old, new)),
        "patch": 2 * speed(in_place),
        "patch_copy": speed(lambda: aq.patch(old, forth)),
    }


def xor_zstd(old: np.ndarray, new: np.ndarray) -> dict[str, float] | None:
    try:
        import zstandard
    except ImportError:
        return None
    packer, opener = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    packed, held = packer.compress((old ^ new).tobytes()), old.copy()

    def in_place() -> None:
        np.bitwise_xor(held, np.frombuffer(opener.decompress(packed), dtype=np.uint16), out=held)

    return {
        "bits": 8 * len(packed) / np.count_nonzero(old != new),
        "diff": speed(lambda: packer.compress((old ^ new).tobytes())),
        "patch": speed(in_place),
    }


def main() -> None:
    given = options(__doc__ or "")
    aq.set_threads(1)
    rows = []
    for share in SHARES:
        old, new = weights(share)
        rows.append({"share": share, "ours": ours(old, new), "xor_zstd": xor_zstd(old, new)})
    record(given.out, {"elements": ELEMENTS, "rows": rows})


if __name__ == "__main__":
    main()
