"""What both filters share: the entries of a message, and the arrays of a DXO.

An order or a reply of the protocol (docs/wire-format.md) takes the place of the arrays. Arrays may be NumPy's or
PyTorch's tensors. PyTorch is imported only where tensors arrive, so that NumPy and TensorFlow jobs do without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, MetaKey
from nvflare.apis.fl_constant import FilterKey, FLContextKey
from nvflare.apis.fl_context import FLContext

from ..errors import ConfigError, FrameError
from ..protocol import bfloat16
from ..protocol.arrays import AnyArray

NAME = "adaquantfl"  # of the algorithm, in the DXO's meta
ORDER, REPLY, TENSORS = "order", "reply", "tensors"


def place(fl_ctx: FLContext) -> tuple[str, str]:
    """The job and the site. A job has two filters of a kind, which NVFlare makes from its files: they share an end."""
    return str(fl_ctx.get_job_id()), str(fl_ctx.get_identity_name())


def arrives(fl_ctx: FLContext) -> bool:
    """Whether a filter sees what this side gets; otherwise it sees what this side sends."""
    return bool(fl_ctx.get_prop(FLContextKey.FILTER_DIRECTION) == FilterKey.IN)


def is_ours(dxo: DXO) -> bool:
    """Whether one of our filters has packed it."""
    return bool(dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM) == NAME)


def packed(dxo: DXO, entries: dict[str, bytes | bool]) -> DXO:
    """The DXO with bytes in place of its arrays."""
    made = DXO(dxo.data_kind, entries, dict(dxo.meta))  # NVFlare gives all clients' tasks the same meta
    made.set_meta_prop(MetaKey.PROCESSED_ALGORITHM, NAME)
    return made


def unpacked(dxo: DXO, arrays: Mapping[str, Any]) -> DXO:
    """The DXO with arrays again; with none, workflows skip it."""
    dxo.remove_meta_props([MetaKey.PROCESSED_ALGORITHM])
    return DXO(dxo.data_kind, dict(arrays), dxo.meta)


def entry(dxo: DXO, name: str) -> bytes:
    """The bytes of this name. FrameError where there are none."""
    found = dxo.data.get(name)
    if not isinstance(found, bytes):
        raise FrameError(f"Expected the bytes {name!r}, got {', '.join(map(repr, dxo.data))[:200]}.")
    return found


def to_arrays(data: Mapping[str, Any]) -> tuple[dict[str, AnyArray], bool]:
    """The values as arrays, and whether they were PyTorch's tensors. ConfigError for anything else."""
    arrays, tensors = dict[str, AnyArray](), False
    for name, value in data.items():
        if type(value).__module__.partition(".")[0] == "torch":
            tensors, plain = True, value.detach().cpu()
            if str(plain.dtype) == "torch.bfloat16":
                import torch

                value = plain.view(torch.int16).numpy().view("V2")
            else:
                value = plain.numpy()
        elif not isinstance(value, np.ndarray | np.generic):
            raise ConfigError(f"{name!r} is a {type(value).__name__}, not a NumPy array or a PyTorch tensor.")
        arrays[name] = np.asarray(value)
    return arrays, tensors


def to_values(arrays: Mapping[str, AnyArray], tensors: bool) -> dict[str, Any]:
    """The arrays, as tensors where they were tensors."""
    if not tensors:
        return dict(arrays)
    import torch

    return {
        name: torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if bfloat16.name_of(array.dtype) == bfloat16.NAME
        else torch.from_numpy(array)
        for name, array in arrays.items()
    }
