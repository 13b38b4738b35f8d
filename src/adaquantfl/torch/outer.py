"""The outer step of local training, as in DiLoCo: processes train alone, and now and then take a step together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ..codecs.coding import encode, quantize_within
from ..errors import ConfigError
from ..protocol.arrays import Vector
from ..protocol.step import STEPS, ServerStep
from ..quantizers.streams import stream_key
from .exchange import check_group, is_number, mean


class OuterStep:
    """Every process trains with an optimizer of its own; `step()` makes one model of all of them.

    What a process has moved since the last step is quantized (`centroid` with balanced levels), nearly without
    bias. The mean over the processes is the gradient of an outer optimizer. Noise averages out over processes and
    steps, so the outer optimizer stays as it is without quantization. All processes must call `step()` equally
    often. They end it with the same weights, bit for bit. Where one cannot send its update, all of them raise, and
    the step is not taken.

    parameters: the model's; those that need no gradient stay as they are. step: the outer optimizer, "nesterov" as
    in DiLoCo, or "sum", "momentum", "adam", or an object such as `aq.Nesterov(eta=0.7, beta=0.9)`. noise: energy of
    the noise in the mean, in energies of one process's update; with more processes each sends fewer bits. seed: of
    the noise; the same in all processes.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> net = nn.Linear(3, 1)
    >>> outer, inner = OuterStep(net.parameters()), torch.optim.AdamW(net.parameters())
    >>> for _ in range(5):
    ...     inner.zero_grad(); net(torch.ones(2, 3)).sum().backward(); inner.step()
    >>> outer.step() > 0  # bytes that this process sent
    True
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        step: str | ServerStep = "nesterov",
        noise: float = 1.0,
        seed: int = 0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if not (is_number(noise) and noise > 0):
            raise ConfigError(f"noise = {noise!r}: it is a number above 0.")
        check_group()
        self._parameters = [p for p in parameters if p.requires_grad]
        if not self._parameters or any(p.dtype != torch.float32 for p in self._parameters):
            raise ConfigError("OuterStep takes parameters of float32 that need gradients, at least one.")
        self._outer = STEPS.find(step)() if isinstance(step, str) else step
        if not self._outer.averages:
            raise ConfigError(
                f"step = {self._outer.name!r} needs each process's update: use one that takes their mean."
            )
        self._noise, self._seed, self._group = noise, seed, group
        for p in self._parameters:  # all begin with the same model
            dist.broadcast(p.data, dist.get_global_rank(group, 0) if group else 0, group)
        self._start = self._weights()
        self._state = self._outer.init(len(self._start))
        self._steps = 0

    @torch.no_grad()
    def step(self) -> int:
        """Take the step together; returns the bytes that this process sent."""
        moved = self._weights() - self._start
        average, size = mean(lambda: self._frame(moved), len(moved), self._group)
        update, self._state = self._outer.apply(average, self._state)
        self._start, self._steps = self._start + update, self._steps + 1
        nn.utils.vector_to_parameters(
            torch.from_numpy(self._start.copy()).to(self._parameters[0].device), self._parameters
        )
        return size

    def _frame(self, moved: Vector) -> bytes:
        lengths = [p.numel() for p in self._parameters]
        key = stream_key(self._seed, self._steps, dist.get_rank(self._group))
        noise = self._noise * dist.get_world_size(self._group)
        return encode(quantize_within(moved, noise, key, lengths, "centroid"))

    def state_dict(self) -> dict[str, Any]:
        """What this process needs to resume after a step, besides the model: save it next to the inner optimizer's."""
        arrays = {"start": self._start, "steps": np.array([self._steps])}
        arrays |= {f"outer.{k}": v for k, v in self._state.items()}
        return {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The way back."""
        arrays = {name: value.cpu().numpy().copy() for name, value in state.items()}
        sizes, expected = ({name: len(value) for name, value in one.items()} for one in (arrays, self.state_dict()))
        if sizes != expected:
            raise ConfigError("The state belongs to another model or another outer optimizer.")
        self._start, self._steps = arrays.pop("start"), int(arrays.pop("steps")[0])
        self._state = {name.removeprefix("outer."): value for name, value in arrays.items()}

    def _weights(self) -> Vector:
        flat = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        return np.array(flat.cpu().numpy(), dtype=np.float32)
