"""NumPy arrays from what a DXO holds, and back: recipes exchange NumPy arrays or PyTorch tensors.

PyTorch is imported only where tensors arrive, so that NumPy and TensorFlow jobs do without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ConfigError, FrameError
from ..protocol.arrays import AnyArray


def to_arrays(data: Mapping[str, Any]) -> tuple[dict[str, AnyArray], dict[str, str]]:
    """The values as arrays, and the PyTorch types of those that were tensors. ConfigError for anything else."""
    arrays: dict[str, AnyArray] = {}
    types: dict[str, str] = {}
    for name, value in data.items():
        if type(value).__module__.partition(".")[0] == "torch":
            types[name] = str(value.dtype).removeprefix("torch.")
            plain = value.detach().cpu()
            value = (plain.float() if types[name] == "bfloat16" else plain).numpy()
        elif not isinstance(value, np.ndarray):
            raise ConfigError(f"{name!r} is a {type(value).__name__}, not a NumPy array or a PyTorch tensor.")
        arrays[name] = value
    return arrays, types


def to_values(arrays: Mapping[str, AnyArray], types: Mapping[str, str]) -> dict[str, Any]:
    """The way back. FrameError for a type that PyTorch does not have."""
    values: dict[str, Any] = dict(arrays)
    if types:
        import torch

        for name, type_name in types.items():
            dtype = getattr(torch, type_name, None)
            if name not in arrays or not isinstance(dtype, torch.dtype):
                raise FrameError(f"The tensor {name!r} of type {type_name!r} cannot be made.")
            values[name] = torch.from_numpy(arrays[name]).to(dtype)
    return values
