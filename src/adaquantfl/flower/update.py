"""A client's trained arrays as one quantized update and back: w' = w + Q(w' - w), in the array's own type and shape.

On the way the ArrayRecord holds the arrays that travel as they are, and one Array of bytes: the client, the number of
its arrays, for each its place in the global model (-1: it travels as it is) and its type, then the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from ..codecs.coding import Accumulator, compress
from ..codecs.frame import payload_size
from ..errors import FrameError
from .plan import Plan

NAME = "adaquantfl.update"  # of the Array that carries the update
STYPE = "adaquantfl.update.v1"  # how it is serialized; the version of the bytes below

_HEAD = struct.Struct("<QI")  # client, number of arrays
_ENTRY = np.dtype([("place", "<i4"), ("dtype", "S3")])  # place in the global model, NumPy's name of the type
_AS_IS = -1

AnyArray = npt.NDArray[np.generic]


class Model:
    """The arrays that a message carried to a client: what its update is measured from."""

    def __init__(self, record: Mapping[str, Array]) -> None:
        self.names = list(record)
        self._arrays = dict(record)  # a copy: handlers and strategies may empty the record
        self._loaded: dict[str, AnyArray | None] = {}

    def array(self, name: str) -> AnyArray | None:
        """An array by name; None where there is none that NumPy reads."""
        if name not in self._loaded:
            self._loaded[name] = ndarray(self._arrays[name]) if name in self._arrays else None
        return self._loaded[name]

    def sizes(self, plan: Plan) -> list[int]:
        """Elements of each array that the plan quantizes."""
        arrays = [self.array(name) for name in self.names if plan.quantizes(name, self.array(name))]
        return [array.size for array in arrays if array is not None]


@dataclass(frozen=True, eq=False)
class Change:
    """An array's update, flat, and the type that the array has."""

    values: npt.NDArray[np.float32]
    dtype: str


@dataclass(frozen=True)
class Opened:
    """An update turned back into arrays. norm is that of the update before it was quantized."""

    arrays: dict[str, Array]
    client: int
    norm: float
    payload_bytes: int


def pack(record: ArrayRecord, model: Model, plan: Plan, client: int) -> ArrayRecord | None:
    """The record to send in place of `record`; None where it has nothing to quantize. QuantizeError on NaN."""
    entries: list[tuple[int, str]] = []
    updates: list[npt.NDArray[np.float32]] = []
    others: dict[str, Array] = {}
    for name, array in record.items():
        if update := change(name, array, model, plan):
            entries.append((model.names.index(name), update.dtype))
            updates.append(update.values)
        else:
            entries.append((_AS_IS, ""))
            others[name] = array
    if plan.s is None or not updates:
        return None
    sizes = [len(update) for update in updates]
    s, stretch = plan.levels(sizes)
    frame = compress(
        np.concatenate(updates), s, plan.key(client), plan.codec, plan.segments(sizes), stretch, plan.quantizer
    )
    data = _HEAD.pack(client, len(entries)) + np.array(entries, dtype=_ENTRY).tobytes() + frame
    return ArrayRecord({**others, NAME: Array("uint8", (len(data),), STYPE, data)})


def is_packed(record: Mapping[str, Array]) -> bool:
    """Whether a record carries an update of ours, whichever version."""
    return any(array.stype.startswith("adaquantfl.") for array in record.values())


def unpack(record: Mapping[str, Array], model: Model, plan: Plan) -> Opened:
    """The client's arrays, with their names, order, types and shapes. FrameError where anything is wrong."""
    others = dict(record)
    packed = others.pop(NAME, None)
    if packed is None or packed.stype != STYPE:
        raise FrameError(
            f"Its update is not of the kind {STYPE!r}. Install the same version of adaquantfl on server and clients."
        )
    client, entries, frame = _split(packed.data)
    if len(others) != np.count_nonzero(entries["place"] == _AS_IS):
        raise FrameError(f"It has {len(others)} arrays beside the update, but lists another number of them.")
    bases = [_base(int(place), model, plan) for place in entries["place"]]
    chosen = [(name, array) for name, array in bases if array is not None]
    if len({name for name, _ in chosen} | set(others)) != len(entries):
        raise FrameError("It has an array twice.")
    sizes = [array.size for _, array in chosen]
    total = Accumulator(sum(sizes))
    checked = total.check(frame, weight=1.0)
    if plan.s is not None and checked.s != (s := plan.levels(sizes)[0]):
        raise FrameError(f"It has s = {checked.s}, but the round's plan says s = {s}.")
    total.add(checked)
    updates = iter(np.split(total.result(), np.cumsum(sizes)[:-1]))
    as_they_are = iter(others.items())
    arrays = dict(
        next(as_they_are) if base is None else (name, _applied(name, base, next(updates), dtype))
        for (name, base), dtype in zip(bases, entries["dtype"].tolist(), strict=True)
    )
    return Opened(arrays, client, checked.norm, payload_size(frame))


def ndarray(array: Array) -> AnyArray | None:
    """An Array's values; None where it was not serialized by NumPy."""
    return array.numpy() if array.stype == "numpy.ndarray" else None


def change(name: str, array: Array, model: Model, plan: Plan) -> Change | None:
    """What an array has become since the model was sent; None for one that the plan does not quantize."""
    before, after = model.array(name), ndarray(array)
    if before is None or after is None or before.shape != after.shape:
        return None
    if not (plan.quantizes(name, before) and plan.quantizes(name, after)):
        return None
    wide = np.result_type(after, before, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite and NaN elements are the quantizer's to refuse
        values = (after.astype(wide) - before.astype(wide)).ravel().astype(np.float32)
    return Change(values, after.dtype.str)


def _split(data: bytes) -> tuple[int, npt.NDArray[np.void], bytes]:
    """Client, entries and frame; the frame in bytes of its own, since it has to start at a whole word."""
    count = _HEAD.unpack_from(data)[1] if len(data) >= _HEAD.size else 0
    start = _HEAD.size + _ENTRY.itemsize * count
    if not 0 < count <= len(data) or start > len(data):
        raise FrameError(f"Truncated: {len(data)} bytes do not hold the list of arrays.")
    entries = np.frombuffer(data, dtype=_ENTRY, count=count, offset=_HEAD.size)
    return _HEAD.unpack_from(data)[0], entries, data[start:]


def _base(place: int, model: Model, plan: Plan) -> tuple[str, AnyArray | None]:
    """The global model's array at a place."""
    if place == _AS_IS:
        return "", None
    name = model.names[place] if 0 <= place < len(model.names) else ""
    base = model.array(name)
    if not plan.quantizes(name, base):
        raise FrameError(f"It has an update for array {place}, which the global model does not have or not as floats.")
    return name, base


def _applied(name: str, base: AnyArray, update: npt.NDArray[np.float32], dtype: bytes) -> Array:
    """w + Q(update) in the client's type."""
    if dtype[1:] not in (b"f2", b"f4", b"f8") or dtype[:1] not in b"<>":
        raise FrameError(f"Array {name!r} is of type {dtype!r}; expected floats of 2, 4 or 8 bytes.")
    with np.errstate(over="ignore"):
        after = (base.astype(np.result_type(base, np.float32)) + update.reshape(base.shape)).astype(dtype.decode())
    if not np.isfinite(after).all():
        raise FrameError(f"Array {name!r} is beyond the range of {after.dtype} with the update.")
    return Array(np.asarray(after))
