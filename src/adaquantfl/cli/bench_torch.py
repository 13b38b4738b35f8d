"""The plain PyTorch version that `adaquantfl bench` measures itself against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

Vector = npt.NDArray[np.float32]


def compress(x: Vector, s: int) -> bytes:
    """Eq. 4 and 5 line by line, eight bits put together by a product."""
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


def add(frame: bytes, s: int, total: Vector) -> None:
    """The same backwards, then eq. 3 line by line."""
    bits = s.bit_length()
    norm = float(np.frombuffer(frame[:4], dtype=np.float32)[0])
    packed = torch.from_numpy(np.frombuffer(frame, dtype=np.uint8, offset=4).copy())
    planes = ((packed[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten()[: len(total) * (bits + 1)]
    weights = 1 << torch.arange(bits + 1, dtype=torch.int32)
    codes = (planes.view(-1, bits + 1).to(torch.int32) * weights).sum(1, dtype=torch.int32)
    level = (codes & ((1 << bits) - 1)).float()
    torch.from_numpy(total).add_(torch.where(codes >> bits == 1, -level, level), alpha=0.5 * norm / s)
