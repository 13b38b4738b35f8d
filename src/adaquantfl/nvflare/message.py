"""What both filters share: the entries of a message, and the arrays of a DXO.

An order or a reply of the protocol (docs/wire-format.md) takes the place of the arrays. Arrays may be NumPy's or
PyTorch's tensors. PyTorch is imported only where tensors arrive, so that NumPy and TensorFlow jobs do without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import RLock
from typing import Any, Generic, TypeVar

import numpy as np
from nvflare.apis.dxo import DXO, MetaKey
from nvflare.apis.fl_constant import FilterKey, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from ..errors import ConfigError, FrameError
from ..protocol.arrays import AnyArray, limited_json

NAME = "adaquantfl"  # of the algorithm, in the DXO's meta
ORDER, REPLY, TYPES = "order", "reply", "types"
_MOST_TYPES = 2**24  # bytes of JSON that name the types of tensors
End = TypeVar("End")


class Ends(Generic[End]):
    """The ends of the conversations of this process: one for each job and site, until the job ends.

    A job has two filters of a kind, one in each direction, which NVFlare makes from its configuration: they share an
    end.
    """

    def __init__(self, make: type[End]) -> None:
        self._make, self._ends, self._lock = make, dict[tuple[str, str], End](), RLock()

    def of(self, fl_ctx: FLContext) -> End:
        with self._lock:
            return self._ends.setdefault(_key(fl_ctx), self._make())

    def forget(self, fl_ctx: FLContext) -> End | None:
        with self._lock:
            return self._ends.pop(_key(fl_ctx), None)


def _key(fl_ctx: FLContext) -> tuple[str, str]:
    return str(fl_ctx.get_job_id()), str(fl_ctx.get_identity_name())


def arrives(fl_ctx: FLContext) -> bool:
    """Whether a filter sees what this side gets; otherwise it sees what this side sends."""
    return bool(fl_ctx.get_prop(FLContextKey.FILTER_DIRECTION) == FilterKey.IN)


def round_of(shareable: Shareable, fl_ctx: FLContext) -> int | None:
    """The round as the workflow counts it; None where it does not."""
    found = shareable.get_header(AppConstants.CURRENT_ROUND)
    found = fl_ctx.get_prop(AppConstants.CURRENT_ROUND) if found is None else found
    return None if found is None else int(found)


def is_ours(dxo: DXO) -> bool:
    """Whether one of our filters has packed it."""
    return bool(dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM) == NAME)


def packed(dxo: DXO, entries: dict[str, bytes | str]) -> DXO:
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


def to_arrays(data: Mapping[str, Any]) -> tuple[dict[str, AnyArray], dict[str, str]]:
    """The values as arrays, and the PyTorch types of those that were tensors. ConfigError for anything else."""
    arrays: dict[str, AnyArray] = {}
    types: dict[str, str] = {}
    for name, value in data.items():
        if type(value).__module__.partition(".")[0] == "torch":
            types[name] = str(value.dtype).removeprefix("torch.")
            plain = value.detach().cpu()
            value = (plain.float() if types[name] == "bfloat16" else plain).numpy()
        elif not isinstance(value, np.ndarray | np.generic):
            raise ConfigError(f"{name!r} is a {type(value).__name__}, not a NumPy array or a PyTorch tensor.")
        arrays[name] = np.asarray(value)
    return arrays, types


def to_values(arrays: Mapping[str, AnyArray], types: Mapping[str, str]) -> dict[str, Any]:
    """The arrays, with tensors where there were tensors. FrameError for a type that PyTorch does not have."""
    values: dict[str, Any] = dict(arrays)
    if types:
        import torch

        for name, type_name in types.items():
            dtype = getattr(torch, type_name, None)
            if name not in arrays or not isinstance(dtype, torch.dtype):
                raise FrameError(f"The tensor {name!r} of type {type_name!r} cannot be made.")
            values[name] = torch.from_numpy(arrays[name]).to(dtype)
    return values


def types_in(dxo: DXO) -> dict[str, str]:
    """The types of tensors that a message names. FrameError on anything else."""
    text = dxo.data.get(TYPES)
    try:
        types = limited_json(text if isinstance(text, str) else "", _MOST_TYPES)
    except (ValueError, TypeError) as error:
        raise FrameError(f"The types of the tensors cannot be read: {error}.") from None
    if not isinstance(types, dict) or not all(isinstance(one, str) for one in types.values()):
        raise FrameError("The types of the tensors are not text.")
    return types
