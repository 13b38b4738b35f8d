"""The fixed code against a straightforward NumPy version of the same arithmetic, and against copying the vector.

python benchmarks/codec.py [--out results/benchmarks/codec.json]
"""

from __future__ import annotations

import numpy as np

import adaquantfl as aq
from common import best, copy_seconds, options, record


def numpy_encode(x: np.ndarray, s: int, rng: np.random.Generator) -> tuple[bytes, np.float32]:
    """Eq. 4 and 5 line by line, and np.packbits."""
    norm = np.linalg.norm(x)
    exact = np.abs(x) / norm * s
    level = np.floor(exact)
    level += rng.random(len(x)) < exact - level
    bits = s.bit_length()
    codes = level.astype(np.uint32) | ((x < 0).astype(np.uint32) << bits)
    planes = (codes[:, None] >> np.arange(bits + 1, dtype=np.uint32)) & 1
    return np.packbits(planes.astype(np.uint8)).tobytes(), norm


def numpy_add(body: bytes, norm: np.float32, s: int, weight: float, total: np.ndarray) -> None:
    """np.unpackbits, and eq. 3 line by line."""
    bits = s.bit_length()
    planes = np.unpackbits(np.frombuffer(body, dtype=np.uint8), count=len(total) * (bits + 1))
    codes = planes.reshape(-1, bits + 1).astype(np.int32) @ (1 << np.arange(bits + 1)).astype(np.int32)
    level = (codes & ((1 << bits) - 1)).astype(np.float32)
    level[codes >> bits == 1] *= -1
    total += np.float32(weight * norm / s) * level


def measure(d: int, s: int, threads: int) -> dict[str, float]:
    aq.set_threads(threads)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(d).astype(np.float32)
    copy = copy_seconds(x)
    frame, (body, norm) = aq.compress(x, s, 1, "fixed"), numpy_encode(x, s, rng)
    total = np.zeros(d, dtype=np.float32)

    def add() -> None:
        sums = accumulator
        sums.add(frame, 0.5)
        sums._flush()  # a frame alone, not waiting for others

    accumulator = aq.Accumulator(d)
    encode = best(lambda: aq.compress(x, s, 1, "fixed"))
    decode = best(add)
    slow_encode = best(lambda: numpy_encode(x, s, rng), 2)
    slow_decode = best(lambda: numpy_add(body, norm, s, 0.5, total), 2)
    return {
        "d": d,
        "s": s,
        "threads": threads,
        "copy_GB_s": 4 * d / copy / 1e9,
        "encode_share_of_copy": copy / encode,
        "decode_share_of_copy": copy / decode,
        "encode_times_numpy": slow_encode / encode,
        "decode_times_numpy": slow_decode / decode,
    }


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = [measure(d, s, threads) for d in (1_663_370, 11_181_642) for s in (2, 3, 15, 255) for threads in (1, 2)]
    record(arguments.out, {"rows": rows})
