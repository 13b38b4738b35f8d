"""A frame from each process to the mean of all of them in every process: an all-gather."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ..codecs.accumulator import Accumulator
from ..errors import EngineError
from ..protocol.arrays import Vector


def check_group() -> None:
    """EngineError where torch.distributed was not initialised."""
    if not dist.is_available() or not dist.is_initialized():
        raise EngineError("There is no process group. Call torch.distributed.init_process_group first.")


def mean(frame: bytes, dimension: int, group: dist.ProcessGroup | None) -> Vector:
    """The mean of all processes' vectors, added up in the order of the ranks: the same bits everywhere."""
    total, frames = Accumulator(dimension), _gather(frame, group)
    for one in frames:
        total.add(one, 1 / len(frames))
    return total.result()


def _gather(frame: bytes, group: dist.ProcessGroup | None) -> list[bytes]:
    """The frames of all processes. They differ in length, and are padded to the longest."""
    processes = dist.get_world_size(group)
    where = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    lengths = [torch.zeros(1, dtype=torch.int64, device=where) for _ in range(processes)]
    dist.all_gather(lengths, torch.tensor([len(frame)], device=where), group)
    sizes = [int(length) for length in lengths]
    padded = torch.frombuffer(bytearray(frame.ljust(max(sizes), b"\0")), dtype=torch.uint8).to(where)
    arrived = [torch.empty_like(padded) for _ in range(processes)]
    dist.all_gather(arrived, padded, group)
    return [one[:size].cpu().numpy().tobytes() for one, size in zip(arrived, sizes, strict=True)]
