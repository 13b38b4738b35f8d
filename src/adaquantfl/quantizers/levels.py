"""A quantized vector, and `quantize`, which makes one with any quantizer of the registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, QuantizeError, called, place_of
from ..open_registry import OUTSIDE_TAGS
from .base import L2, LARGEST_FLOAT, Count, Lengths, Quantizer, norm_of, top
from .registry import find
from .segments import Segments

if TYPE_CHECKING:
    from .vectors import FloatVector, Stretch


_TILE = 1 << 14  # elements that are in double at a time


@dataclass(frozen=True, eq=False)
class Levels:
    """A quantized vector: integers, and what a receiver needs to make floats of them again.

    With the paper's quantizer, `uniform`, element i is scale * values[i] / s. `scale` is one float32, or with
    `segments` (their lengths) an array with one float32 for each segment. `key` is the stream key where a receiver
    needs it, `number` what else its quantizer sends.

    >>> levels = Levels(values=np.array([3, -4], dtype=np.int8), scale=np.float32(10), s=5)
    >>> levels.dequantize()
    array([ 6., -8.], dtype=float32)
    """

    values: npt.NDArray[np.signedinteger]
    scale: np.float32 | npt.NDArray[np.float32]
    s: int
    segments: npt.NDArray[np.int64] | None = None
    quantizer: str = "uniform"
    norm: str = L2
    key: int | None = None
    number: float | None = None

    @property
    def dimension(self) -> int:
        """How many elements it has.

        >>> quantize(np.array([3.0, -4.0]), s=5, key=0).dimension
        2
        """
        return len(self.values)

    @property
    def scales(self) -> npt.NDArray[np.float32]:
        """The scales as an array, also where there is only one.

        >>> [quantize(np.array([3.0, -4.0]), s=5, key=0, segments=each).scales.tolist() for each in (None, [1, 1])]
        [[5.0], [3.0, 4.0]]
        """
        return np.asarray(self.scale, dtype=np.float32).reshape(-1)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where the segments begin, and the dimension.

        >>> quantize(np.array([3.0, -4.0, 1.0]), s=5, key=0, segments=[2, 1]).offsets
        array([0, 2, 3])
        """
        return Segments.of(self.segments, self.dimension).offsets

    @property
    def top(self) -> int:
        """The largest magnitude that a level may have: s for most quantizers.

        >>> quantize(np.array([3.0, -4.0]), s=5, key=0).top
        5
        """
        return top(find(self.quantizer).traits, self.s, self.number)

    @property
    def bound(self) -> float:
        """What no element can exceed in size, whatever its level.

        >>> quantize(np.array([3.0, -4.0], dtype=np.float32), s=5, key=0).bound
        5.0
        """
        return find(self.quantizer).bound(self)

    def dequantize(self) -> npt.NDArray[np.float32]:
        """Return the float32 vector that a receiver works with.

        >>> quantize(np.array([3.0, -4.0], dtype=np.float32), s=5, key=0).dequantize()
        array([ 3., -4.], dtype=float32)
        """
        kind = find(self.quantizer)
        floats = kind.dequantize(self)
        if isinstance(floats, np.ndarray) and floats.dtype == np.float32 and floats.shape == (self.dimension,):
            return floats
        where = f"The quantizer {kind.name!r}: dequantize{place_of(kind.dequantize)} returned {_shown(floats)}"
        raise ConfigError(f"{where}, expected float32 of shape ({self.dimension:,},).")

    def remainder(self, x: FloatVector) -> npt.NDArray[np.float32]:
        """Return what quantizing left out of x, which error feedback adds to the next vector.

        >>> x = np.array([1.0, -5.0, 2.0, 0.0], dtype=np.float32)
        >>> quantize(x, s=4, key=0, quantizer="stc").remainder(x)
        array([1., 0., 2., 0.], dtype=float32)
        """
        floats = self.dequantize()
        if x.dtype != np.float32:
            return (x - floats).astype(np.float32)
        return np.subtract(x, floats, out=floats)

    def take_from(self, x: npt.NDArray[np.float32]) -> None:
        """Turn x into its remainder, in place.

        >>> x = np.array([1.0, -5.0, 2.0, 0.0], dtype=np.float32)
        >>> quantize(x, s=4, key=0, quantizer="stc").take_from(x)
        >>> x
        array([1., 0., 2., 0.], dtype=float32)
        """
        if not find(self.quantizer).traits.linear:
            for here, floats in find(self.quantizer).pieces(self):
                x[here] -= floats
            return
        for here, each in self.tiles(self.steps):
            x[here] -= np.multiply(self.values[here], each, dtype=np.float64).astype(np.float32)

    @property
    def steps(self) -> npt.NDArray[np.float64]:
        """What a level of each segment is multiplied by, where the quantizer is linear.

        >>> quantize(np.array([3.0, -4.0]), s=5, key=0).steps
        array([1.])
        """
        return self.scales.astype(np.float64) / (self.s if find(self.quantizer).traits.divides else 1)

    def times(self, steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Return each level times its segment's step, computed in double and rounded once.

        >>> levels = quantize(np.array([3.0, -4.0]), s=5, key=0)
        >>> levels.times(levels.steps)
        array([ 3., -4.], dtype=float32)
        """
        out = np.empty(self.dimension, dtype=np.float32)
        for here, each in self.tiles(steps):
            out[here] = np.multiply(self.values[here], each, dtype=np.float64)
        return out

    def tiles(
        self, numbers: npt.NDArray[np.float64], begin: int = 0, end: int | None = None
    ) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
        """Each segment's number for all of its elements, some at a time: all doubles would be twice the vector."""
        offsets, end = self.offsets, self.dimension if end is None else end
        for start in range(begin, end, _TILE):
            stop = min(start + _TILE, end)
            first, last = np.searchsorted(offsets, start, "right") - 1, np.searchsorted(offsets, stop)
            bounds: npt.NDArray[np.int64] = np.clip(offsets[first : last + 1], start, stop)
            yield slice(start, stop), np.repeat(numbers[first:last], np.diff(bounds))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Levels):
            return NotImplemented
        return (
            (self.s, self.quantizer, self.norm, self.key, self.number)
            == (other.s, other.quantizer, other.norm, other.key, other.number)
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.values, other.values)
        )

    __hash__ = None  # type: ignore[assignment]  # holds arrays


def level_dtype(top: int) -> np.dtype[np.signedinteger]:
    """The smallest signed integer type that holds the levels -top to top.

    >>> level_dtype(127), level_dtype(128)
    (dtype('int8'), dtype('int16'))
    """
    return np.dtype(np.int8 if top <= 127 else np.int16 if top <= 32_767 else np.int32)


def quantize(
    x: FloatVector,
    s: int,
    key: int,
    segments: Lengths | None = None,
    stretch: Stretch = 1.0,
    quantizer: str | Quantizer = "uniform",
    norm: str | None = None,
) -> Levels:
    """Quantize a vector; with the paper's quantizer to levels -s to s of its l2 norm, at random and without bias.

    - `x`: 1-D float32 or float64 array (float64 is rounded to float32 first).
    - `s`: 1 to 65535; larger is finer.
    - `key`: from `stream_key`; the same key gives the same levels.
    - `segments`: lengths of runs with a norm of their own (the tensors of a model, or buckets). None is one norm for
      the whole vector.
    - `stretch`: levels lie this many times further apart, so there are s / stretch of them. 0.7 levels are s = 1 with
      stretch = 1 / 0.7. An array has one for each segment.
    - `quantizer`: a name (`adaquantfl methods`), or an object.
    - `norm`: "l2" or "linf"; None: its usual one.

    >>> levels = quantize(np.array([0.0, 1.0, -2.0, 2.0], dtype=np.float32), s=3, key=7)
    >>> levels.values, levels.scale, levels.s
    (array([ 0,  1, -2,  2], dtype=int8), np.float32(3.0), 3)
    >>> quantize(np.array([0.0, 1.0, -2.0, 2.0], dtype=np.float32), s=2, key=7, norm="linf").scale
    np.float32(2.0)
    """
    from .vectors import check_levels  # which imports this module

    kind = find(quantizer)
    check_levels(s, kind.traits.most)
    if not kind.traits.stretches and np.any(np.asarray(stretch) != 1.0):
        raise QuantizeError(f"stretch={stretch!r}: {kind.name} has no steps to stretch; leave it at 1.")
    levels = _made(kind, kind.quantize(x, int(s), key, segments, stretch, norm_of(kind, norm)), len(x), int(s))
    if segments is None and levels.segments is not None and len(levels.segments) == 1:
        levels = replace(levels, scale=levels.scales[0], segments=None)
    if not levels.bound <= LARGEST_FLOAT:
        raise QuantizeError(
            f"With a scale of {levels.scales.max():g}, an element could decode to {levels.bound:g}, which is beyond "
            f"{LARGEST_FLOAT:g}. Scale the vector down first."
        )
    return levels


def _made(kind: Quantizer, levels: Any, dimension: int, s: int) -> Levels:
    """What `quantize` made, checked, because a quantizer may be the user's own. ConfigError has its file and line."""
    where = f"The quantizer {kind.name!r}: quantize{place_of(kind.quantize)} returned"
    if not isinstance(levels, Levels):
        raise ConfigError(f"{where} {_shown(levels)}, expected aq.Levels(values, scale, s, segments, name, norm).")
    values, scales = levels.values, levels.scale
    if not (isinstance(values, np.ndarray) and values.dtype.kind == "i" and values.shape == (dimension,)):
        raise ConfigError(f"{where} levels of {_shown(values)}, expected signed integers of shape ({dimension:,},).")
    if not isinstance(scales, np.floating) and not (isinstance(scales, np.ndarray) and scales.dtype.kind == "f"):
        raise ConfigError(f"{where} a scale of {_shown(scales)}, expected a float32, or an array of them.")
    count = 1 if levels.segments is None else len(levels.segments)
    if len(levels.scales) != count:
        raise ConfigError(f"{where} {len(levels.scales):,} scales, expected one for each of the {count:,} segments.")
    if levels.s != s or levels.quantizer != kind.name:
        raise ConfigError(f"{where} s = {levels.s!r} of {levels.quantizer!r}, expected {s} and its own name.")
    return levels


def try_out(kind: Quantizer) -> None:
    """Quantize a small vector with a quantizer of another package: its faults are named before clients meet them."""
    if all(tag not in OUTSIDE_TAGS for tag in kind.tags.values()):
        return
    x, words = np.linspace(-1.0, 1.0, 64, dtype=np.float32), f"The quantizer {kind.name!r}"
    for lengths in (None, np.array([32, 16, 16])):
        found: Any = called(words, kind.levels_for, Count(min(3, kind.traits.most)), np.array([64]), x)
        match found:
            case (int() | np.integer() as s, stretch) if 1 <= s <= kind.traits.most and np.isfinite(stretch).all():
                pass
            case _:
                expected = f"expected s, a whole number from 1 to {kind.traits.most}, and a stretch"
                raise ConfigError(f"{words}: levels_for{place_of(kind.levels_for)} returned {found!r}, {expected}.")
        levels: Levels = called(words, quantize, x, int(s), 0, lengths, stretch, kind)
        largest = np.abs(levels.values.astype(np.int64)).max()
        if largest > levels.top:
            where = f"{words}: quantize{place_of(kind.quantize)} returned"
            raise ConfigError(f"{where} a level of {largest}; its traits allow {levels.top} for s = {s}.")
        highest, bound = np.abs(called(words, levels.dequantize)).max(), called(words, kind.bound, levels)
        if not highest <= bound * (1 + 1e-5):
            where = f"{words}: dequantize{place_of(kind.dequantize)}"
            raise ConfigError(f"{where} gave values up to {highest:g}, above its bound {bound!r}.")


def _shown(value: object) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
