"""The model on the wire: one float32 vector that is quantized, and the arrays that travel as they are.

A user's weights are a flat vector or a mapping of named arrays. `Layout` says which array is which: float arrays are
laid end to end in the vector; BatchNorm's statistics and the like travel as float32, not quantized; integers and what
else there is travel as their own bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, FrameError

Vector = npt.NDArray[np.float32]
AnyArray = npt.NDArray[Any]
Weights = AnyArray | Mapping[str, AnyArray]

# BatchNorm's statistics in PyTorch and Keras: a variance with noise on it can be negative.
EXACT_NAMES = ("*running_mean", "*running_var", "*num_batches_tracked", "*moving_mean", "*moving_variance")
QUANTIZED, EXACT, OTHER = "q", "e", "o"  # kinds of arrays
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class Model:
    """The global model: the quantized vector, the float32 statistics, and the bytes of all other arrays."""

    weights: Vector
    buffers: Vector
    others: bytes = b""


@dataclass(frozen=True)
class Entry:
    """One array: its name, NumPy's name of its type, its shape, and which part of the model holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


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
            if array.dtype.kind not in "fiubV" or (array.dtype.kind in "fV" and array.dtype.name not in _FLOATS):
                raise ConfigError(
                    f"The array {name!r} has type {array.dtype}; expected float16, bfloat16, float32, float64, "
                    "integers or booleans."
                )
            untouched = any(fnmatchcase(str(name), pattern) for pattern in patterns)
            quantized = array.dtype.name in _FLOATS and array.size > 0 and not untouched
            statistics = untouched and array.dtype.name == "float32" and array.size > 0
            kind = QUANTIZED if quantized else EXACT if statistics else OTHER
            entries.append(Entry(str(name), array.dtype.name, array.shape, kind))
        layout = Layout(tuple(entries), not isinstance(weights, Mapping))
        if not layout.lengths or (layout.flat and len(entries[0].shape) != 1):
            raise ConfigError("The weights need at least one array of floats that is not empty; a bare array is 1-D.")
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

    def split(self, weights: Weights) -> Model:
        """A user's weights as a model. ConfigError where names or shapes are not those of the layout."""
        arrays = self._arrays(weights)
        others = b"".join(np.ascontiguousarray(a).astype(e.dtype).tobytes() for e, a in arrays if e.kind == OTHER)
        vector, buffers = (self._vector(arrays, kind) for kind in (QUANTIZED, EXACT))
        return Model(vector, buffers, others)

    def typed(self, weights: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Arrays in the types of the model: who aggregates often turns integers into floats."""
        types = {entry.name: _dtype(entry.dtype) for entry in self.entries}
        out = {}
        for name, array in weights.items():
            dtype = types.get(name, array.dtype)
            rounded = np.rint(array) if dtype.kind in "iub" and array.dtype.kind == "f" else array
            out[name] = rounded.astype(dtype)
        return out

    def join(self, model: Model, copy: bool = True) -> Weights:
        """A model in the form of the user's weights; copy = False gives read-only views where types allow it."""
        out: dict[str, AnyArray] = {}
        place = {QUANTIZED: 0, EXACT: 0, OTHER: 0}
        for entry in self.entries:
            start = place[entry.kind]
            if entry.kind == OTHER:
                dtype = _dtype(entry.dtype)
                piece: AnyArray = np.frombuffer(model.others, dtype, entry.size, start)
                place[OTHER] += entry.size * dtype.itemsize
            else:
                source = model.weights if entry.kind == QUANTIZED else model.buffers
                piece = source[start : start + entry.size]
                place[entry.kind] += entry.size
                with np.errstate(over="ignore"):
                    piece = piece.astype(_dtype(entry.dtype), copy=False)
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
        """The way back; FrameError on anything else."""
        try:
            flat, rows = json.loads(text)
            entries = tuple(Entry(str(n), str(t), tuple(int(x) for x in shape), str(k)) for n, t, shape, k in rows)
            layout = Layout(entries, bool(flat))
            valid = all(e.kind in (QUANTIZED, EXACT, OTHER) and min(e.shape, default=0) >= 0 for e in entries)
            if not valid or not layout.lengths or layout.dimension > 2**32 or layout.other_bytes > 2**40:
                raise ValueError("no such layout")
            return layout
        except (ValueError, TypeError, ConfigError) as error:
            raise FrameError(f"The layout of the model cannot be read: {error}.") from None

    def _arrays(self, weights: Weights) -> list[tuple[Entry, AnyArray]]:
        named: Mapping[str, AnyArray] = weights if isinstance(weights, Mapping) else {"": weights}
        if self.flat == isinstance(weights, Mapping) or set(named) != {entry.name for entry in self.entries}:
            expected = "one flat vector" if self.flat else f"the arrays {', '.join(e.name for e in self.entries[:9])}"
            raise ConfigError(f"The weights are not those of the model that was opened: expected {expected}.")
        pairs = [(entry, np.asarray(named[entry.name])) for entry in self.entries]
        for entry, array in pairs:
            if array.shape != entry.shape:
                raise ConfigError(f"The array {entry.name!r} has shape {array.shape}, expected {entry.shape}.")
        return pairs

    def _vector(self, arrays: Sequence[tuple[Entry, AnyArray]], kind: str) -> Vector:
        parts = [array.reshape(-1) for entry, array in arrays if entry.kind == kind]
        if len(parts) == 1 and parts[0].dtype == np.float32:
            return np.ascontiguousarray(parts[0])
        with np.errstate(over="ignore"):
            return np.concatenate([np.empty(0, np.float32), *(part.astype(np.float32, copy=False) for part in parts)])


def mean_of_others(layout: Layout, parts: Sequence[bytes], weights: Sequence[float]) -> bytes:
    """The weighted mean of the arrays that travel as they are; integers are rounded."""
    share = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    out, place = [], 0
    for entry in layout.entries:
        if entry.kind != OTHER or not entry.size:
            continue
        dtype = _dtype(entry.dtype)
        columns = [np.frombuffer(part, dtype, entry.size, place).astype(np.float64) for part in parts]
        mean = share @ np.stack(columns)
        whole: Callable[[Any], Any] = np.rint if dtype.kind in "iub" else np.asarray
        out.append(whole(mean).astype(dtype).tobytes())
        place += entry.size * dtype.itemsize
    return b"".join(out)


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # type: ignore[import-not-found]  # bfloat16 is not NumPy's own; who has it has this package

        return np.dtype(str(getattr(ml_dtypes, name).__name__))
