"""What turns one array of weights into another, bit for bit: for services that push new weights to inference.

A step of training in bfloat16 moves few weights, and nearly all of them to a neighbouring number. Which ones, in which
direction and how far is a frame of levels: the level is the number of floats in between. docs/wire-format.md has the
bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FrameError, QuantizeError
from .difference import Moves, distance_frame, encode_distances, read_distances
from .frame import Bytes

AnyArray = npt.NDArray[Any]

_HEADER = struct.Struct("<4sBBQQ")  # magic, type, kind, elements, check: the sum of the changed weights' new patterns
_MAGIC = b"AQD1"
_FLOAT32, _BFLOAT16, _FLOAT16 = range(3)  # types
_LEVELS, _PLANES, _WHOLE = range(3)  # kinds: a frame of distances; their signs and bytes; the new array itself
_TYPES = {"float32": _FLOAT32, "bfloat16": _BFLOAT16, "uint16": _BFLOAT16, "void16": _BFLOAT16, "float16": _FLOAT16}
_NAMES = ("float32", "bfloat16", "float16")


def diff(old: AnyArray, new: AnyArray) -> bytes:
    """Return the bytes that turn `old` into `new`: arrays of one shape, float32, float16 or bfloat16.

    bfloat16 is the type of ml_dtypes, or its bit patterns as uint16: `tensor.view(torch.uint16).numpy()`.

    >>> old = np.array([1.0, 2.0, 3.0], dtype=np.float16)
    >>> new = np.array([1.0, 2.002, 3.0], dtype=np.float16)
    >>> patch(old, diff(old, new))
    array([1.   , 2.002, 3.   ], dtype=float16)
    """
    kind, before = _patterns(old, "old")
    other, after = _patterns(new, "new")
    if kind != other or np.shape(old) != np.shape(new):
        raise QuantizeError(
            f"old is {_look(old)} and new is {_look(new)}: a difference is between arrays of one type and one shape."
        )
    moves = Moves.between(before, after)
    check = int(after[moves.index].sum(dtype=np.uint64))
    form, body = (_PLANES if kind == _FLOAT32 else _LEVELS), b""
    if len(before):
        body = encode_distances(moves) if form == _PLANES else distance_frame(moves)
    if len(body) >= after.nbytes:
        form, body, check = _WHOLE, after.tobytes(), int(after.sum(dtype=np.uint64))
    return _HEADER.pack(_MAGIC, kind, form, len(before), check) + body


def patch(old: AnyArray, difference: Bytes, out: AnyArray | None = None) -> AnyArray:
    """Return `new` from `old` and the result of `diff`. Raises FrameError if it is damaged or of another array.

    out: an array of the same type and shape that takes the result; `out=old` changes the weights in place, which is the
    fastest. Where the difference is refused, `old` is as it was.

    >>> weights, new = np.ones(1000, dtype=np.float32), np.ones(1000, dtype=np.float32)
    >>> new[7] = 1.5
    >>> difference = diff(weights, new)
    >>> patch(weights, difference, out=weights) is weights, weights[7]
    (True, np.float32(1.5))
    >>> patch(weights, difference)
    Traceback (most recent call last):
    adaquantfl.errors.FrameError: The difference does not lead from this array: it belongs to other weights.
    """
    kind, before = _patterns(old, "old")
    form, check, body = _opened(difference, kind, len(before), old)
    result = np.array(old, order="C") if out is None else out
    other, bits = _patterns(result, "out")
    if other != kind or np.shape(result) != np.shape(old) or not (result.flags.c_contiguous and result.flags.writeable):
        raise QuantizeError(
            f"out is {_look(result)}: expected a contiguous array that can be written, like old, which is {_look(old)}."
        )
    if out is not None and not np.shares_memory(bits, before):
        bits[:] = before
    if form == _WHOLE:
        after = np.frombuffer(body, dtype=bits.dtype)
        if int(after.sum(dtype=np.uint64)) != check:
            raise FrameError("The difference is damaged: its sum is not the one in its header.")
        bits[:] = after
        return result
    moves = read_distances(body, len(bits)) if form == _PLANES else Moves.of_frame(body, len(bits))
    if moves.apply(bits) != check:
        moves.apply(bits, back=True)
        raise FrameError("The difference does not lead from this array: it belongs to other weights.")
    return result


def _opened(difference: Bytes, kind: int, elements: int, old: AnyArray) -> tuple[int, int, bytes]:
    """Kind, check and body of a difference for an array like this."""
    data = bytes(difference)
    if len(data) < _HEADER.size or data[: len(_MAGIC)] != _MAGIC:
        raise FrameError("The bytes are not a difference: they do not begin as one does.")
    _, of_kind, form, of_elements, check = _HEADER.unpack_from(data)
    if of_kind >= len(_NAMES) or form > _WHOLE or (form == _PLANES) != (of_kind == _FLOAT32 and form != _WHOLE):
        raise FrameError(f"The difference has the type {of_kind} and the kind {form}, which do not go together.")
    if of_kind != kind or of_elements != elements:
        raise FrameError(
            f"The difference is for {of_elements:,} elements of {_NAMES[of_kind]}, but old is {_look(old)}."
        )
    body = data[_HEADER.size :]
    if form == _WHOLE and len(body) != elements * (4 if kind == _FLOAT32 else 2):
        raise FrameError(f"The difference holds {len(body):,} bytes of weights, which is not as many as it should.")
    return form, check, body


def _patterns(array: AnyArray, name: str) -> tuple[int, AnyArray]:
    """The type of an array, and its bit patterns as a vector: a view where the array is contiguous."""
    kind = _TYPES.get(getattr(getattr(array, "dtype", None), "name", ""))
    if not isinstance(array, np.ndarray) or kind is None or not array.dtype.isnative:
        raise QuantizeError(
            f"{name} is {_look(array)}: expected an array of float32, float16 or bfloat16 (ml_dtypes, or as uint16)."
        )
    return kind, np.ascontiguousarray(array).reshape(-1).view(np.uint32 if kind == _FLOAT32 else np.uint16)


def _look(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return f"a {type(value).__name__}"
    return f"{value.dtype.name} of shape {value.shape}"
