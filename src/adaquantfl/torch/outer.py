"""The outer step of local training, as in DiLoCo: processes train alone, and now and then take a step together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ..errors import ConfigError
from ..protocol.arrays import Vector
from ..protocol.step import STEPS, ServerStep
from .exchange import Exchange


class OuterStep:
    """Every process trains with an optimizer of its own; `step()` makes one model of all of them.

    How far a process has moved since the last step is quantized, with error feedback. The mean over the processes is
    the gradient of an outer optimizer. All processes must call `step()` equally often. They end it with the same
    weights, bit for bit.

    - `parameters`: the model's; those that need no gradient stay as they are.
    - `step`: the outer optimizer, "nesterov" as in DiLoCo, or "sum", "momentum", "adam", "yogi", or an object such as
      `aq.Nesterov(eta=0.7, beta=0.9)`.
    - `error`: the share of an update's energy that may be sent later. With momentum, much of it makes training slower.
    - `bits`: bits for each element at most, instead of `error`.
    - `kept`: how much of what was left out is added to the next update. With few bits it is less than 1, with a large
      step and no momentum (docs/how-to/pytorch.md).

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
        error: float = 0.2,
        group: dist.ProcessGroup | None = None,
        bits: float | None = None,
        kept: float = 1.0,
    ) -> None:
        if not 0 <= kept <= 1:
            raise ConfigError(f"kept = {kept!r}: it is a share, from 0 to 1.")
        self._parameters = [p for p in parameters if p.requires_grad]
        if not self._parameters or any(p.dtype != torch.float32 for p in self._parameters):
            raise ConfigError("OuterStep takes parameters of float32 that need gradients, at least one.")
        self._outer = STEPS.find(step)() if isinstance(step, str) else step
        if not self._outer.averages:
            raise ConfigError(
                f"step = {self._outer.name!r} needs each process's update: use one that takes their mean."
            )
        self._exchange, self._kept = Exchange(error, group, bits), np.float32(kept)
        for p in self._parameters:  # all begin with the same model
            dist.broadcast(p.data, dist.get_global_rank(group, 0) if group else 0, group)
        self._start = self._weights()
        self._state = self._outer.init(len(self._start))
        self._left_out = np.zeros_like(self._start)

    @torch.no_grad()
    def step(self) -> int:
        """Take the step together; returns the bytes that this process sent."""
        moved = self._weights() - self._start + self._kept * self._left_out
        done = self._exchange.mean(moved, [p.numel() for p in self._parameters])
        update, self._state = self._outer.apply(done.mean, self._state)
        self._start, self._left_out = self._start + update, done.left_out
        nn.utils.vector_to_parameters(torch.from_numpy(self._start.copy()).to(self._device), self._parameters)
        return done.bytes_sent

    def state_dict(self) -> dict[str, Any]:
        """What this process needs to resume after a step, besides the model: save it next to the inner optimizer's."""
        arrays = {"start": self._start, "left_out": self._left_out, **{f"outer.{k}": v for k, v in self._state.items()}}
        return {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The way back."""
        arrays = {name: value.numpy().copy() for name, value in state.items()}
        sizes, expected = ({name: len(value) for name, value in one.items()} for one in (arrays, self.state_dict()))
        if sizes != expected:
            raise ConfigError("The state belongs to another model or another outer optimizer.")
        self._start, self._left_out = arrays.pop("start"), arrays.pop("left_out")
        self._state = {name.removeprefix("outer."): value for name, value in arrays.items()}

    @property
    def _device(self) -> torch.device:
        return self._parameters[0].device

    def _weights(self) -> Vector:
        flat = nn.utils.parameters_to_vector(self._parameters).detach().cpu().numpy()
        return np.array(flat, dtype=np.float32)
