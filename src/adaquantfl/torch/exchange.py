"""A frame from each process to the mean of all of them in every process: an all-gather."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.distributed as dist

from ..codecs.accumulator import Accumulator
from ..errors import AdaQuantError, EngineError
from ..protocol.arrays import Vector


def is_number(value: object) -> bool:
    """Whether a setting is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_group() -> None:
    """EngineError where torch.distributed was not initialised."""
    if not dist.is_available() or not dist.is_initialized():
        raise EngineError("There is no process group. Call torch.distributed.init_process_group first.")


def mean(make_frame: Callable[[], bytes], dimension: int, group: dist.ProcessGroup | None) -> tuple[Vector, int]:
    """The mean of all processes' vectors, and the bytes that this one sent.

    Frames are added up in the order of the ranks: the same bits everywhere. Where a process cannot make its frame, all
    of them raise: nobody waits for it.
    """
    failure = None
    try:
        frame = make_frame()
    except AdaQuantError as error:
        failure, frame = error, b""
    frames = _gather(frame, group)
    if failure is not None:
        raise failure
    if failed := [rank for rank, one in enumerate(frames) if not one]:
        raise EngineError(
            f"Process {failed[0]} could not send its update, and says why itself. No process took the step."
        )
    total = Accumulator(dimension)
    for one in frames:
        total.add(one, 1 / len(frames))
    return total.result(), len(frame)


def _gather(frame: bytes, group: dist.ProcessGroup | None) -> list[bytes]:
    """The frames of all processes; empty where one has none. They differ in length, and are padded to the longest."""
    processes = dist.get_world_size(group)
    where = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    lengths = [torch.zeros(1, dtype=torch.int64, device=where) for _ in range(processes)]
    dist.all_gather(lengths, torch.tensor([len(frame)], device=where), group)
    sizes = [int(length) for length in lengths]
    padded = torch.frombuffer(bytearray(frame.ljust(max(1, *sizes), b"\0")), dtype=torch.uint8).to(where)
    arrived = [torch.empty_like(padded) for _ in range(processes)]
    dist.all_gather(arrived, padded, group)
    return [one[:size].cpu().numpy().tobytes() for one, size in zip(arrived, sizes, strict=True)]
