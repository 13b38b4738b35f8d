"""This machine's codec speed, next to its copy speed and to straightforward NumPy and PyTorch versions.

Speeds are in GB/s of float32 in or out, and as a share of np.copyto of the same vector in the same run. Machines are
shared and noisy, but a ratio within one run is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from adaquantfl.codecs.accumulator import Accumulator
from adaquantfl.codecs.coding import compress
from adaquantfl.threads import get_threads

Vector = npt.NDArray[np.float32]
CODECS = ("fixed", "sparse", "dense")
LEVELS = (1, 3, 15, 255, 65535)
DIMENSIONS = (1_663_370, 11_181_642, 100_000_000)
_PLAIN_LIMIT = 2**27  # bits: beyond it the plain versions' temporaries take many gigabytes
_PATIENCE = 1.0  # seconds


@dataclass(frozen=True)
class Speed:
    """One row: seconds of the fastest of several runs, on a Gaussian vector."""

    d: int
    s: int
    codec: str
    threads: int
    frame_bytes: int
    copy_seconds: float
    compress_seconds: float
    add_seconds: float  # decode and accumulate, checksum and checks included

    @property
    def bits_per_element(self) -> float:
        return 8 * self.frame_bytes / self.d

    @property
    def compress_share(self) -> float:
        return self.copy_seconds / self.compress_seconds

    @property
    def add_share(self) -> float:
        return self.copy_seconds / self.add_seconds

    def to_dict(self) -> dict[str, Any]:
        shares = {"compress_share_of_copy": self.compress_share, "add_share_of_copy": self.add_share}
        return {**asdict(self), **shares, "bits_per_element": self.bits_per_element}


def best(work: Callable[[], object], repeat: int = 7, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the fastest of several runs, after one that warms up: noise only ever adds. Slow work repeats less."""
    work()
    times: list[float] = []
    while len(times) < repeat and (len(times) < 2 or sum(times) < _PATIENCE):
        began = clock()
        work()
        times.append(clock() - began)
    return min(times)


def measure(
    dimensions: Sequence[int] = DIMENSIONS,
    levels: Sequence[int] = LEVELS,
    codecs: Sequence[str] = CODECS,
    plain: bool = True,
) -> Iterator[Speed]:
    """A row for every dimension, s and codec, as soon as it is measured. plain: the straightforward versions too."""
    for d in dimensions:
        x = gaussian(d)
        for s in levels:
            yield from (_measure(x, s, codec) for codec in codecs)
            if plain and d * s.bit_length() <= _PLAIN_LIMIT:
                yield from (_measure_plain(x, s, name, version) for name, version in plain_versions().items())


def gaussian(d: int) -> Vector:
    """The vector that is measured."""
    return np.random.default_rng(0).standard_normal(d, dtype=np.float32)


def table(rows: Sequence[Speed]) -> str:
    """The rows for a terminal."""
    header = f"{'d':>12} {'s':>6} {'codec':8} {'bits/el.':>9} {'compress':>20} {'decode + add':>20}"
    lines = [header, "-" * len(header)]
    for row in rows:
        size = 4 * row.d / 1e9
        lines.append(
            f"{row.d:12,} {row.s:6} {row.codec:8} {row.bits_per_element:9.4f} "
            f"{size / row.compress_seconds:7.2f} GB/s ({row.compress_share:5.2f}) "
            f"{size / row.add_seconds:7.2f} GB/s ({row.add_share:5.2f})"
        )
    copies = ", ".join(f"{size / 1e9:.1f}" for size in sorted({4 * row.d / row.copy_seconds for row in rows}))
    lines.append(
        f"In brackets: share of the speed of np.copyto ({copies} GB/s). The core on {rows[0].threads} thread(s)."
    )
    return "\n".join(lines)


def _measure(x: Vector, s: int, codec: str) -> Speed:
    target = np.empty_like(x)
    copy = best(lambda: np.copyto(target, x), 15)
    frame = compress(x, s, 1, codec)
    total = Accumulator(len(x))

    def add() -> None:
        total.add(frame, 0.5)

    return Speed(len(x), s, codec, get_threads(), len(frame), copy, best(lambda: compress(x, s, 1, codec)), best(add))


Plain = tuple[Callable[[Vector, int], bytes], Callable[[bytes, int, Vector], None]]


def plain_versions() -> dict[str, Plain]:
    """Straightforward versions of the same arithmetic, by the name of their library."""
    versions: dict[str, Plain] = {"numpy": (numpy_compress, numpy_add)}
    if find_spec("torch") is not None:  # else the core is installed alone
        versions["torch"] = torch_compress, torch_add
    return versions


def _measure_plain(x: Vector, s: int, name: str, version: Plain) -> Speed:
    encode, add = version
    target, total = np.empty_like(x), np.zeros_like(x)
    copy = best(lambda: np.copyto(target, x))
    frame = encode(x, s)
    seconds = best(lambda: encode(x, s)), best(lambda: add(frame, s, total))
    return Speed(len(x), s, name, get_threads(), len(frame), copy, *seconds)


def numpy_compress(x: Vector, s: int) -> bytes:
    """Eq. 4 and 5 line by line, then np.packbits; the norm in front."""
    norm = np.linalg.norm(x)
    exact = np.abs(x) / norm * s
    level = np.floor(exact)
    level += np.random.default_rng(1).random(len(x), dtype=np.float32) < exact - level
    bits = s.bit_length()
    codes = level.astype(np.uint32) | ((x < 0).astype(np.uint32) << bits)
    planes = (codes[:, None] >> np.arange(bits + 1, dtype=np.uint32)) & 1
    return norm.tobytes() + np.packbits(planes.astype(np.uint8)).tobytes()


def numpy_add(frame: bytes, s: int, total: Vector) -> None:
    """np.unpackbits, then eq. 3 line by line."""
    bits = s.bit_length()
    norm = np.frombuffer(frame[:4], dtype=np.float32)[0]
    planes = np.unpackbits(np.frombuffer(frame, dtype=np.uint8, offset=4), count=len(total) * (bits + 1))
    codes = planes.reshape(-1, bits + 1).astype(np.int32) @ (1 << np.arange(bits + 1)).astype(np.int32)
    level = (codes & ((1 << bits) - 1)).astype(np.float32)
    level[codes >> bits == 1] *= -1
    total += np.float32(0.5 * norm / s) * level


def torch_compress(x: Vector, s: int) -> bytes:
    """Eq. 4 and 5 line by line, eight bits put together by a product."""
    import torch

    vector = torch.from_numpy(x)
    norm = torch.linalg.vector_norm(vector)
    exact = vector.abs() / norm * s
    level = exact.floor()
    level += torch.rand(len(x), generator=torch.Generator().manual_seed(1)) < exact - level
    bits = s.bit_length()
    codes = level.to(torch.int32) | ((vector < 0).to(torch.int32) << bits)
    planes = ((codes[:, None] >> torch.arange(bits + 1, dtype=torch.int32)) & 1).to(torch.uint8).flatten()
    planes = torch.nn.functional.pad(planes, (0, -len(planes) % 8)).view(-1, 8)
    packed = (planes * (1 << torch.arange(8, dtype=torch.uint8))).sum(1, dtype=torch.uint8)
    return bytes(norm.numpy().tobytes() + packed.numpy().tobytes())


def torch_add(frame: bytes, s: int, total: Vector) -> None:
    """The same backwards, then eq. 3 line by line."""
    import torch

    bits = s.bit_length()
    norm = float(np.frombuffer(frame[:4], dtype=np.float32)[0])
    packed = torch.from_numpy(np.frombuffer(frame, dtype=np.uint8, offset=4).copy())
    planes = ((packed[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten()[: len(total) * (bits + 1)]
    weights = 1 << torch.arange(bits + 1, dtype=torch.int32)
    codes = (planes.view(-1, bits + 1).to(torch.int32) * weights).sum(1, dtype=torch.int32)
    level = (codes & ((1 << bits) - 1)).float()
    torch.from_numpy(total).add_(torch.where(codes >> bits == 1, -level, level), alpha=0.5 * norm / s)
