"""Where clients train: the CPU, or a GPU of this host."""

from __future__ import annotations

import torch

from ..errors import ConfigError


def find_device(name: str) -> torch.device:
    """The device of this name; ConfigError where this host has none.

    >>> find_device("cpu")
    device(type='cpu')
    """
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ConfigError(f"device = {name!r}, but PyTorch finds {count} CUDA devices on this host: {_OTHERWISE}")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device = {name!r}, but PyTorch finds no Apple GPU on this host: {_OTHERWISE}")
    return device


_OTHERWISE = "set device = 'cpu', or install the build of PyTorch that has its driver."


def seed_generator(device: torch.device, seed: int) -> None:
    """What layers such as dropout draw from on a GPU; the CPU's is the business of `repeatable`."""
    if device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)
