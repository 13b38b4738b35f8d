"""One vector from each process, quantized, to the mean of all of them in every process: an all-gather of frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from ..codecs.accumulator import Accumulator
from ..codecs.coding import encode
from ..errors import ConfigError, EngineError
from ..protocol.arrays import Vector
from ..quantizers.choice import levels_for_error
from ..quantizers.levels import Levels, quantize
from ..quantizers.registry import find
from .budget import within

QUANTIZER = "fitted"  # nearest levels with a least-squares step: made for error feedback
NO_KEY = 0  # it draws nothing at random


@dataclass(frozen=True)
class Exchanged:
    """mean: over the processes, the same bits in each. left_out: of this one's vector, to be added to its next."""

    mean: Vector
    left_out: Vector
    bytes_sent: int


@dataclass(frozen=True)
class Exchange:
    """Settings. error: the share of a vector's energy that may be sent later; larger is cheaper and later. bits: for
    each element at most, instead of an error. group: of processes; None is the default one."""

    error: float
    group: dist.ProcessGroup | None
    bits: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.error, bool) or not isinstance(self.error, int | float) or not 0 < self.error < 1:
            raise ConfigError(f"error = {self.error!r}: it is a share of the energy, above 0 and below 1.")
        if self.bits is not None and not (self.bits > 0 and math.isfinite(self.bits)):
            raise ConfigError(f"bits = {self.bits!r}: it is a number above 0, of bits for each element.")
        if not dist.is_available() or not dist.is_initialized():
            raise EngineError("There is no process group. Call torch.distributed.init_process_group first.")

    def mean(self, vector: Vector, lengths: Sequence[int]) -> Exchanged:
        """The mean of all processes' vectors. lengths: of the tensors in it."""
        levels, frame = quantized(vector, lengths, self.error, self.bits)
        total, frames = Accumulator(len(vector)), self._gather(frame)
        for one in frames:  # in the order of the ranks: the same sum everywhere
            total.add(one, 1 / len(frames))
        return Exchanged(total.result(), levels.remainder(vector), len(frame))

    def _gather(self, frame: bytes) -> list[bytes]:
        """The frames of all processes. They differ in length, and are padded to the longest."""
        processes = dist.get_world_size(self.group)
        where = "cuda" if dist.get_backend(self.group) == "nccl" else "cpu"
        lengths = [torch.zeros(1, dtype=torch.int64, device=where) for _ in range(processes)]
        dist.all_gather(lengths, torch.tensor([len(frame)], device=where), self.group)
        sizes = [int(length) for length in lengths]
        padded = torch.frombuffer(bytearray(frame.ljust(max(sizes), b"\0")), dtype=torch.uint8).to(where)
        arrived = [torch.empty_like(padded) for _ in range(processes)]
        dist.all_gather(arrived, padded, self.group)
        return [one[:size].cpu().numpy().tobytes() for one, size in zip(arrived, sizes, strict=True)]


def quantized(vector: Vector, lengths: Sequence[int], error: float, bits: float | None) -> tuple[Levels, bytes]:
    """The levels of a vector and their frame: the coarsest with this error, or the finest within the bits."""
    if bits is not None:
        return within(vector, lengths, bits, QUANTIZER)
    quantizer, segments = find(QUANTIZER), np.asarray(lengths, dtype=np.int64)
    s, stretch = quantizer.levels_for(levels_for_error(quantizer, vector, error, NO_KEY, segments), segments)
    levels = quantize(vector, s, NO_KEY, segments, stretch, quantizer)
    return levels, encode(levels)
