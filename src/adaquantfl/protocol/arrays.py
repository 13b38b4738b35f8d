"""The model on the wire: one float32 vector that is quantized, and the arrays that travel as they are.

A user's weights are a flat vector or a mapping of named arrays. `Layout` says which array is which. Float arrays are
laid end to end in the vector. BatchNorm's statistics and the like travel as float32, not quantized. All others, such as
integers, travel as their own bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, FrameError
from ..quantizers.vectors import all_finite
from . import bfloat16

Vector = npt.NDArray[np.float32]
AnyArray = npt.NDArray[Any]
Weights = AnyArray | Mapping[str, AnyArray]

# BatchNorm's statistics in PyTorch and Keras: a variance with noise on it can be negative.
EXACT_NAMES = ("*running_mean", "*running_var", "*num_batches_tracked", "*moving_mean", "*moving_variance")
QUANTIZED, EXACT, OTHER = "q", "e", "o"  # kinds of arrays
_FLOATS = ("float16", "bfloat16", "float32", "float64")
MOST_LAYOUT_BYTES = 2**22  # of its text
MOST_ARRAYS = 2**16
MOST_AXES = 32  # of an array
MOST_DIGITS = 10  # of a number: 4,300 of them, which Python allows, take long to read
MOST_ELEMENTS, MOST_OTHER_BYTES = 2**32, 2**40  # quantized elements, and as many in buffers; bytes as they are


@dataclass(frozen=True, eq=False)
class Model:
    """The global model: the quantized vector, the float32 statistics, and the bytes of all other arrays."""

    weights: Vector
    buffers: Vector
    others: bytes = b""

    def towards(self, base: Model, factor: float) -> Model:
        """The model with its difference from another one, in what is float32, multiplied by the factor."""
        c = np.float32(factor)
        weights, buffers = (
            base.weights + c * (self.weights - base.weights),
            base.buffers + c * (self.buffers - base.buffers),
        )
        return Model(weights, buffers, self.others)


@dataclass(frozen=True)
class Entry:
    """One array: its name, NumPy's name of its type, its shape, and which part of the model holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The arrays of a model in their order. flat: the user's weights are one bare vector, not a mapping."""

    entries: tuple[Entry, ...]
    flat: bool = False

    @staticmethod
    def of(weights: Weights, exact: Iterable[str] = EXACT_NAMES) -> Layout:
        """The layout of a user's weights. exact: patterns of names of arrays that are not to be quantized."""
        patterns = (exact,) if isinstance(exact, str) else tuple(exact)
        named = weights if isinstance(weights, Mapping) else {"": weights}
        entries = []
        for name, array in named.items():
            array = np.asarray(array)
            kind_name = bfloat16.name_of(array.dtype)
            if not isinstance(name, str):
                raise ConfigError(f"The arrays of a model are named by text, not by {name!r}.")
            if array.dtype.kind not in "fiubV" or (array.dtype.kind in "fV" and kind_name not in _FLOATS):
                raise ConfigError(
                    f"The array {name!r} has type {array.dtype}; expected float16, bfloat16, float32, float64, "
                    "integers or booleans."
                )
            untouched = any(fnmatchcase(str(name), pattern) for pattern in patterns)
            quantized = kind_name in _FLOATS and array.size > 0 and not untouched
            statistics = untouched and kind_name == "float32" and array.size > 0
            kind = QUANTIZED if quantized else EXACT if statistics else OTHER
            entries.append(Entry(str(name), kind_name, array.shape, kind))
        layout = Layout(tuple(entries), not isinstance(weights, Mapping))
        if not layout.lengths or (layout.flat and len(entries[0].shape) != 1):
            raise ConfigError("The weights need at least one array of floats that is not empty; a bare array is 1-D.")
        if len(entries) > MOST_ARRAYS or len(layout.to_json().encode()) > MOST_LAYOUT_BYTES:
            raise ConfigError(
                f"The model has {len(entries):,} arrays; clients take {MOST_ARRAYS:,} at most, and "
                f"{MOST_LAYOUT_BYTES:,} bytes for their names, types and shapes."
            )
        return layout

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Elements of each quantized array, in order: the tensors that a scope cuts the vector into."""
        return tuple(entry.size for entry in self.entries if entry.kind == QUANTIZED)

    @cached_property
    def dimension(self) -> int:
        return sum(self.lengths)

    @cached_property
    def buffers(self) -> int:
        """Elements that travel as float32."""
        return sum(entry.size for entry in self.entries if entry.kind == EXACT)

    @cached_property
    def other_bytes(self) -> int:
        """Bytes of the arrays that travel as they are."""
        return sum(entry.size * _dtype(entry.dtype).itemsize for entry in self.entries if entry.kind == OTHER)

    @cached_property
    def narrow(self) -> bool:
        """Whether an array's own type holds less than the float32 of the vector."""
        return any(entry.kind == QUANTIZED and entry.dtype in ("float16", "bfloat16") for entry in self.entries)

    @property
    def has_bfloat16(self) -> bool:
        """Whether there are arrays that NumPy cannot compute with."""
        return any(entry.dtype == bfloat16.NAME for entry in self.entries)

    def split(self, weights: Weights, copy: bool = False) -> Model:
        """A user's weights as a model; copy: it shares no memory with them. ConfigError where names, shapes or kinds of
        numbers are not those of the layout."""
        arrays = self._arrays(weights)
        others = b"".join(_cast(a, e.dtype).tobytes() for e, a in arrays if e.kind == OTHER)
        vector, buffers = (self._vector(arrays, kind, copy) for kind in (QUANTIZED, EXACT))
        return Model(vector, buffers, others)

    def is_finite(self, model: Model) -> bool:
        """Whether all floats of a model are numbers: neither NaN nor infinite."""
        return (
            all_finite(model.weights)
            and all_finite(model.buffers)
            and all(
                all_finite(bfloat16.widened(values))
                for entry, values in self.pieces(model)
                if entry.kind == OTHER and entry.dtype in _FLOATS
            )
        )

    def pieces(self, model: Model) -> Iterator[tuple[Entry, AnyArray]]:
        """Each array with its values, flat, as the model holds them."""
        place = {QUANTIZED: 0, EXACT: 0, OTHER: 0}
        for entry in self.entries:
            start, size = place[entry.kind], entry.size
            if entry.kind == OTHER:
                dtype = _dtype(entry.dtype)
                yield entry, np.frombuffer(model.others, dtype, size, start)
                size *= dtype.itemsize
            else:
                yield entry, (model.weights if entry.kind == QUANTIZED else model.buffers)[start : start + size]
            place[entry.kind] += size

    def check_types(self, weights: Mapping[str, AnyArray]) -> None:
        """Refuse arrays of another type than the model's: ConfigError."""
        for entry in self.entries:
            if entry.name in weights and bfloat16.name_of(weights[entry.name].dtype) != entry.dtype:
                raise ConfigError(f"The array {entry.name!r} has type {weights[entry.name].dtype}, not {entry.dtype}.")

    def typed(self, weights: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Arrays in the types of the model: who aggregates often turns integers into floats."""
        types = {entry.name: entry.dtype for entry in self.entries}
        out = {}
        for name, array in weights.items():
            kind = types.get(name, bfloat16.name_of(array.dtype))
            rounded = np.rint(array) if _dtype(kind).kind in "iub" and array.dtype.kind == "f" else array
            out[name] = _cast(rounded, kind)
        return out

    def join(self, model: Model, copy: bool = True, wide: bool = False) -> Weights:
        """A model in the form of the user's weights; copy = False gives read-only views where types allow it.

        wide: bfloat16 stays float32, for who has to compute with it.
        """
        out: dict[str, AnyArray] = {}
        for entry, values in self.pieces(model):
            piece = bfloat16.widened(values) if wide and entry.dtype == bfloat16.NAME else _cast(values, entry.dtype)
            piece = piece.reshape(entry.shape)
            if copy:
                piece = piece.copy()
            else:
                piece = piece.view()
                piece.flags.writeable = False
            out[entry.name] = piece
        return out[""] if self.flat else out

    def to_json(self) -> str:
        """The layout as text, for an order and for a state."""
        rows = [[entry.name, entry.dtype, list(entry.shape), entry.kind] for entry in self.entries]
        return json.dumps([self.flat, rows], separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> Layout:
        """Restore from `to_json`; FrameError on anything else."""
        try:
            flat, rows = limited_json(text, MOST_LAYOUT_BYTES)
            if not isinstance(flat, bool) or len(rows) > MOST_ARRAYS:
                raise ValueError(f"it has {len(rows):,} arrays; {MOST_ARRAYS:,} is the most")
            layout = Layout(tuple(_entry(*row) for row in rows), flat)
            layout._check()
            return layout
        except (ValueError, TypeError, ConfigError) as error:
            raise FrameError(f"The layout of the model cannot be read: {error}.") from None

    def _check(self) -> None:
        """Refuse a layout that `of` does not make: ValueError."""
        names = {entry.name for entry in self.entries}
        if len(names) != len(self.entries) or (self.flat and names != {""}):
            raise ValueError("two arrays have the same name, or a flat vector has one")
        if self.flat and len(self.entries[0].shape) != 1:
            raise ValueError("a flat vector has one dimension")
        if not self.lengths or self.dimension > MOST_ELEMENTS or self.buffers > MOST_ELEMENTS:
            raise ValueError(f"it has {self.dimension:,} elements; expected 1 to 2^32")
        if self.other_bytes > MOST_OTHER_BYTES:
            raise ValueError("the arrays that travel as they are take more than 2^40 bytes")

    def _arrays(self, weights: Weights) -> list[tuple[Entry, AnyArray]]:
        named: Mapping[str, AnyArray] = weights if isinstance(weights, Mapping) else {"": weights}
        if self.flat == isinstance(weights, Mapping) or set(named) != {entry.name for entry in self.entries}:
            expected = "one flat vector" if self.flat else f"the arrays {', '.join(e.name for e in self.entries[:9])}"
            raise ConfigError(f"The weights are not those of the model that was opened: expected {expected}.")
        pairs = [(entry, np.asarray(named[entry.name])) for entry in self.entries]
        for entry, array in pairs:
            if array.shape != entry.shape:
                raise ConfigError(f"The array {entry.name!r} has shape {array.shape}, expected {entry.shape}.")
            floats, kind = entry.dtype in _FLOATS, array.dtype.kind
            if kind not in "fiubV" or (not floats and kind not in "iub") or (kind == "V" and not _is_bfloat16(array)):
                raise ConfigError(f"The array {entry.name!r} has type {array.dtype}, expected {entry.dtype}.")
        return pairs

    def _vector(self, arrays: Sequence[tuple[Entry, AnyArray]], kind: str, copy: bool) -> Vector:
        parts = [bfloat16.widened(array).reshape(-1) for entry, array in arrays if entry.kind == kind]
        if len(parts) == 1 and parts[0].dtype == np.float32 and not copy:
            return np.ascontiguousarray(parts[0])
        with np.errstate(over="ignore"):
            return np.concatenate([np.empty(0, np.float32), *(part.astype(np.float32, copy=False) for part in parts)])


def _entry(name: str, dtype: str, shape: list[int], kind: str) -> Entry:
    """An array of a layout that somebody sent: ValueError or ConfigError where `Layout.of` makes none like it."""
    if not (isinstance(name, str) and isinstance(dtype, str) and isinstance(shape, list)):
        raise ValueError("an array has a name, a type, a list of lengths and a kind")
    name.encode()  # half of a pair of surrogates is no text
    if len(shape) > MOST_AXES or not all(isinstance(n, int) and not isinstance(n, bool) for n in shape):
        raise ValueError(f"the shape of {name!r} is not a list of at most {MOST_AXES} lengths")
    if math.prod(max(n, 1) for n in shape) > MOST_ELEMENTS:
        raise ValueError(f"the array {name!r} has more than 2^32 elements")
    _dtype(dtype)
    entry = Entry(name, dtype, tuple(shape), kind)
    fits = {QUANTIZED: dtype in _FLOATS and entry.size, EXACT: dtype == "float32" and entry.size, OTHER: True}
    if not (isinstance(kind, str) and fits.get(kind)):
        raise ValueError(f"the array {name!r} of type {dtype} cannot be of kind {kind!r}")
    return entry


def mean_of_others(layout: Layout, parts: Sequence[bytes], weights: Sequence[float]) -> bytes:
    """The weighted mean of the arrays that travel as they are; integers are rounded."""
    share = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    return merged_others(layout, parts, lambda rows: share @ rows)


def merged_others(layout: Layout, parts: Sequence[bytes], statistic: Callable[[AnyArray], AnyArray]) -> bytes:
    """A statistic, of float64 values with a row for each part, of the arrays that travel as they are."""
    nothing = np.empty(0, dtype=np.float32)
    models = [layout.pieces(Model(nothing, nothing, part)) for part in parts]
    rows = [[values for entry, values in pieces if entry.kind == OTHER and entry.size] for pieces in models]
    return b"".join(_merged(list(column), statistic).tobytes() for column in zip(*rows, strict=True))


def _merged(columns: Sequence[AnyArray], statistic: Callable[[AnyArray], AnyArray]) -> AnyArray:
    """In the arrays' own type. Equal arrays stay as they are; integers are rounded."""
    dtype = columns[0].dtype
    if all(column.tobytes() == columns[0].tobytes() for column in columns):
        return columns[0]
    merged = statistic(np.stack([bfloat16.widened(column).astype(np.float64) for column in columns]))
    if dtype.kind in "iu":
        least, most = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
        if dtype.itemsize == 8:
            most = np.nextafter(most, 0.0)  # 2^63 - 1 and 2^64 - 1 are no float64
        merged = np.clip(np.rint(merged), least, most)
    return _cast(np.rint(merged) if dtype.kind == "b" else merged, bfloat16.name_of(dtype))


def _is_bfloat16(array: AnyArray) -> bool:
    return bfloat16.name_of(array.dtype) == bfloat16.NAME


def _cast(array: AnyArray, name: str) -> AnyArray:
    """An array in the type of this name."""
    if name == bfloat16.NAME:
        return array if _is_bfloat16(array) else bfloat16.narrowed(array)
    with np.errstate(over="ignore"):
        return bfloat16.widened(array).astype(_dtype(name), copy=False)


def _dtype(name: str) -> np.dtype[Any]:
    if name == bfloat16.NAME:
        return bfloat16.dtype()
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.name != name or not (dtype.kind in "iub" or name in _FLOATS):
        raise ConfigError(f"{name!r} is not a type of a model's arrays")
    return dtype


def limited_json(text: str | bytes, most: int) -> Any:
    """Return what the JSON of a peer says: short whole numbers and text in lists or objects. ValueError otherwise.

    most: bytes of the text. What it takes to read is proportional to it.
    """
    if len(text) > most:
        raise ValueError(f"it has {len(text):,} bytes; {most:,} is the most")
    try:
        return json.loads(text, parse_int=_short_number, parse_float=_short_number, parse_constant=_short_number)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None


def _short_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS or not digits.isdecimal():
        raise ValueError(f"a number in it has {len(digits)} characters, or is not a whole number from 0")
    return int(digits)
